/** What is wrong, as the agent ranks it: read when links change their state, and every few seconds for ages and numbers. */

const EVERY = 5_000; // ms
const SOON = 300; // several links change at once
const BETWEEN = 1_000;

export class Causes extends EventTarget {
  #api;
  #timer = 0;
  #readAt = -Infinity;
  found = { causes: [] };

  constructor(api) {
    super();
    this.#api = api;
    setInterval(() => document.hidden || this.read(), EVERY);
  }

  soon() {
    if (this.#timer) return;
    const wait = Math.max(SOON, this.#readAt + BETWEEN - performance.now());
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      if (!document.hidden) this.read();
    }, wait);
  }

  async read() {
    if (document.body.dataset.connection !== "live") return;
    this.#readAt = performance.now();
    try {
      this.found = await this.#api.get("/api/causes");
      this.dispatchEvent(new Event("change"));
    } catch {
      // The connection shows whether the agent answers; its last answer stays valid.
    }
  }
}
