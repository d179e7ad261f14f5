/** The recent history of one link: first the agent's record, then live events. */

const KEEP = 15 * 60_000; // ms, the period that the agent keeps
const BUCKET = 5_000;
const SAMPLED = 15_000; // interval of the agent's samples; idle periods have none

export class History {
  #points = [];
  transitions = [];

  /** `told` is the agent's record; samples received here after its last one stay. */
  take(told) {
    const points = steady(told.samples.map(({ at, ...numbers }) => ({ time: Date.parse(at), ...numbers })));
    const last = points.at(-1)?.time ?? 0;
    this.#points = [...points, ...this.#points.filter((point) => point.time > last)];
    this.transitions = told.transitions;
  }

  put(view, time) {
    const { forwarded, backlog, oldest_unconfirmed_seconds } = view;
    this.#points.push({ time, forwarded, backlog, oldest_unconfirmed_seconds });
    while (this.#points[0].time < time - KEEP) this.#points.shift();
  }

  span(time) {
    return [time - KEEP, time];
  }

  /** Messages per second, one point per bucket; a total that shrank was reset. */
  rates() {
    const found = [];
    let previous = null;
    for (const point of this.#buckets()) {
      if (previous !== null) {
        const seconds = (point.time - previous.time) / 1_000;
        const grown = point.forwarded - previous.forwarded;
        found.push([point.time, grown < 0 ? null : grown / seconds]);
      }
      previous = point;
    }
    return found;
  }

  lags() {
    return this.#buckets().map(({ time, backlog }) => [time, backlog ?? null]);
  }

  ages() {
    return this.#buckets().map(({ time, oldest_unconfirmed_seconds }) => [time, oldest_unconfirmed_seconds]);
  }

  /** The last sample of each complete bucket: an incomplete one has no rate. */
  #buckets() {
    const last = new Map();
    for (const point of this.#points) last.set(Math.floor(point.time / BUCKET), point);
    return [...last.values()].slice(0, -1);
  }
}

/**
 * Repeats an unchanged value shortly before the next sample: otherwise a stop looks like minutes of slowing down, and
 * one message like a trickle.
 */
function steady(points) {
  return points.flatMap((point, at) => {
    const before = points[at - 1];
    const isNear = !before || point.time - before.time < 2 * SAMPLED;
    if (isNear) return [point];
    return [{ ...before, time: before.time + SAMPLED }, { ...before, time: point.time - SAMPLED }, point];
  });
}
