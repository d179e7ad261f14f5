/** The recent history of one link: first the agent's record, then live events. */

const MINUTE = 60_000;

/** How far back charts show; a point of a chart lasts `bucket`. */
export const RANGES = {
  "15m": { label: "15 min", keep: 15 * MINUTE, bucket: 5_000 },
  "1h": { label: "1 h", keep: 60 * MINUTE, bucket: MINUTE },
  "24h": { label: "24 h", keep: 24 * 60 * MINUTE, bucket: 10 * MINUTE },
};

export class History {
  #points = [];
  #range = RANGES["15m"];
  transitions = [];

  /** `told` is the agent's record; samples received here after its last one stay. */
  take(told) {
    this.#range = RANGES[told.range] ?? RANGES["15m"];
    const every = (told.step_seconds ?? 15) * 1_000; // between samples; idle periods have none
    const read = told.samples.map(({ at, ...numbers }) => ({ time: Date.parse(at), ...numbers }));
    const points = steady(read, every);
    const last = points.at(-1)?.time ?? 0;
    this.#points = [...points, ...this.#points.filter((point) => point.time > last)];
    this.transitions = told.transitions;
  }

  put(view, time) {
    const { forwarded, backlog, oldest_unconfirmed_seconds } = view;
    this.#points.push({ time, forwarded, backlog, oldest_unconfirmed_seconds });
    while (this.#points[0].time < time - this.#range.keep) this.#points.shift();
  }

  span(time) {
    return [time - this.#range.keep, time];
  }

  /** Messages per second, one point per bucket; a total that shrank was reset. */
  rates() {
    const found = [];
    let previous = null;
    for (const point of this.#buckets()) {
      if (previous !== null) {
        const seconds = (point.time - previous.time) / 1_000;
        if (seconds * 2_000 < this.#range.bucket) continue; // a bucket that has just begun
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

  /** The last total of each bucket, and the most that waited in it. */
  #buckets() {
    const found = new Map();
    for (const point of this.#points) {
      const at = Math.floor(point.time / this.#range.bucket);
      const before = found.get(at);
      found.set(at, before ? merged(before, point) : point);
    }
    return [...found.values()];
  }
}

const merged = (before, point) => ({
  ...point,
  backlog: most(before.backlog, point.backlog),
  oldest_unconfirmed_seconds: most(before.oldest_unconfirmed_seconds, point.oldest_unconfirmed_seconds),
});

/** The greater of those that are known. */
function most(one, other) {
  const known = [one, other].filter((value) => value !== null && value !== undefined);
  return known.length > 0 ? Math.max(...known) : null;
}

/**
 * Repeats an unchanged value shortly before the next sample: otherwise a stop looks like minutes of slowing down, and
 * one message like a trickle.
 */
function steady(points, every) {
  return points.flatMap((point, at) => {
    const before = points[at - 1];
    const isNear = !before || point.time - before.time < 2 * every;
    if (isNear) return [point];
    return [{ ...before, time: before.time + every }, { ...before, time: point.time - every }, point];
  });
}
