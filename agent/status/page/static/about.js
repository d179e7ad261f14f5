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

  /** An agent that can't be reached is told of elsewhere. */
  async read() {
    if (document.body.dataset.connection !== "live" || document.hidden) return;
    try {
      this.#store.describe(await this.#api.get("/api/overview"));
    } catch (error) {
      text(byId("problems-title"), `The agent doesn't tell about itself: ${error.message}`);
    }
  }

  show({ agent, group, cluster, version, problems = [] }) {
    text(byId("agent"), agent ?? "");
    const parts = [cluster && `beside ${cluster}`, group && group !== cluster && `group ${group}`, version && `version ${version}`];
    text(byId("agent-more"), parts.filter(Boolean).join(" · "));
    const key = problems.join("\n");
    if (key === this.#shown) return;
    this.#shown = key;
    byId("problems").hidden = problems.length === 0;
    byId("problem-list").replaceChildren(...problems.map((problem) => h("li", {}, problem)));
  }
}
