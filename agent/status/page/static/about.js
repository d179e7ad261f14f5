/** Which agent this is, and what is wrong with its configuration. */

import { byId, h, text } from "./dom.js";

const EVERY = 15_000; // ms; nothing tells that the configuration was refused

export class About {
  #api;
  #store;
  #shown = "";

  constructor(api, store) {
    this.#api = api;
    this.#store = store;
    setInterval(() => this.read(), EVERY);
  }

  async read() {
    if (document.body.dataset.connection !== "live" || document.hidden) return;
    try {
      this.#store.describe(await this.#api.get("/api/overview"));
    } catch {
      // Whether it answers is told by the connection; what it said of itself last still stands.
    }
  }

  show({ agent, group, cluster, version, problems = [] }) {
    text(byId("agent"), agent ?? "");
    const others = group && group !== cluster ? `group ${group}` : "";
    const parts = [cluster && `beside ${cluster}`, others, version && `version ${version}`];
    text(byId("agent-more"), parts.filter(Boolean).join(" · "));
    const key = problems.join("\n");
    if (key === this.#shown) return;
    this.#shown = key;
    byId("problems").hidden = problems.length === 0;
    byId("problem-list").replaceChildren(...problems.map((problem) => h("li", {}, problem)));
  }
}
