/** A link's total of forwarded messages, by slots of time: sparklines are its differences. The rate is the agent's. */

export const SLOT = 2_000; // ms; samples come each second, so a slot holds two and jitter shows little
const SLOTS = 61;

export class Series {
  #values = new Float64Array(SLOTS);
  #slot = -1;
  #filled = 0;

  /** Adds a total; one that shrank is from a new process, which counts from zero. */
  put(total, now) {
    const slot = Math.floor(now / SLOT);
    if (this.#slot >= 0 && total < this.#at(this.#slot)) this.#filled = 0;
    if (this.#filled === 0) {
      this.#slot = slot;
      this.#filled = 1;
    } else {
      this.#advance(slot);
    }
    this.#values[slot % SLOTS] = total;
  }

  /** Messages per second in each complete slot, oldest first. */
  rates(now) {
    if (this.#filled === 0) return [];
    const slot = this.#advance(Math.floor(now / SLOT));
    const found = [];
    for (let at = slot - this.#filled + 2; at < slot; at += 1) {
      found.push(((this.#at(at) - this.#at(at - 1)) * 1_000) / SLOT);
    }
    return found;
  }

  #at(slot) {
    return this.#values[slot % SLOTS];
  }

  /** Without samples nothing was forwarded; returns the latest slot. */
  #advance(slot) {
    const last = this.#at(this.#slot);
    for (let at = Math.max(this.#slot + 1, slot - SLOTS + 1); at <= slot; at += 1) this.#values[at % SLOTS] = last;
    this.#filled = Math.min(SLOTS, this.#filled + Math.max(0, slot - this.#slot));
    this.#slot = Math.max(slot, this.#slot);
    return this.#slot;
  }
}
