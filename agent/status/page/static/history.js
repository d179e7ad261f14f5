/** What one link did lately: as the agent remembers it, and then as it happens. */

const KEEP = 15 * 60_000; // ms, as long as the agent remembers
const BUCKET = 5_000;
const SAMPLED = 15_000; // what the agent remembers lies so far apart, but nothing of the time when nothing moved

export class History {
  #points = [];
  transitions = [];

  /** `told` is the agent's memory; what was seen here after its last sample stays. */
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

  /** Messages a second, one point a bucket; a total that shrank began anew. */
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

  /** The last of each bucket that is over: a part of one tells no rate. */
  #buckets() {
    const last = new Map();
    for (const point of this.#points) last.set(Math.floor(point.time / BUCKET), point);
    return [...last.values()].slice(0, -1);
  }
}

/** What was the same from a sample to shortly before the next is told so: else a stop looks like minutes of slowing
    down, and one message like a trickle. */
function steady(points) {
  return points.flatMap((point, at) => {
    const before = points[at - 1];
    const isNear = !before || point.time - before.time < 2 * SAMPLED;
    if (isNear) return [point];
    return [{ ...before, time: before.time + SAMPLED }, { ...before, time: point.time - SAMPLED }, point];
  });
}
