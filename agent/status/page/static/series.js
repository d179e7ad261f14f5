/** What a link had forwarded, by slots of time: rates and sparklines are differences of it. */

export const SLOT = 2_000; // ms; samples come each second, so a slot holds two and jitter shows little
const SLOTS = 61;
const WINDOW = 3; // slots that a shown rate is averaged over

export class Series {
  #values = new Float64Array(SLOTS);
  #slot = -1;
  #filled = 0;

  /** Takes a total; one that shrank is a new process's, which counts from zero. */
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

  /** Messages a second over the last slots that are over; null until there are two to compare. */
  rate(now) {
    if (this.#filled === 0) return null;
    const slot = this.#advance(Math.floor(now / SLOT));
    const slots = Math.min(WINDOW, this.#filled - 2);
    if (slots < 1) return null;
    return ((this.#at(slot - 1) - this.#at(slot - 1 - slots)) * 1_000) / (slots * SLOT);
  }

  /** Messages a second in each slot that is over, oldest first. */
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

  /** Nothing came in between, so nothing was forwarded; answers the latest slot. */
  #advance(slot) {
    const last = this.#at(this.#slot);
    for (let at = Math.max(this.#slot + 1, slot - SLOTS + 1); at <= slot; at += 1) this.#values[at % SLOTS] = last;
    this.#filled = Math.min(SLOTS, this.#filled + Math.max(0, slot - this.#slot));
    this.#slot = Math.max(slot, this.#slot);
    return this.#slot;
  }
}
