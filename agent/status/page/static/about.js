/** The agent's name and version, and problems and notes of its configuration. */

import { byId, h, set, text } from "./dom.js";

const EVERY = 15_000; // ms; no event reports that the configuration was refused

export class About {
  #api;
  #store;
  #problems = new Told("problems", "problem-list");
  #notRun = new Told("not-run", "not-run-list");
  #notes = new Told("notes", "note-list");

  constructor(api, store) {
    this.#api = api;
    this.#store = store;
    setInterval(() => document.hidden || this.read(), EVERY);
  }

  async read() {
    if (document.body.dataset.connection !== "live") return;
    try {
      this.#store.describe(await this.#api.get("/api/overview"));
    } catch {
      // The connection shows whether it answers; its last answer stays valid.
    }
  }

  show({ agent, group, cluster, version, problems = [], not_run: notRun = [], notes = [] }) {
    text(byId("agent"), agent ?? "federation-agent");
    const others = group && group !== cluster ? `group ${group}` : "";
    const parts = [cluster && `beside ${cluster}`, others, version && `version ${version}`];
    text(byId("agent-more"), parts.filter(Boolean).join(" · "));
    set(byId("agent-more"), "title", byId("agent-more").textContent); // cut off on a phone
    this.#problems.show(problems);
    this.#notRun.show(notRun);
    this.#notes.show(notes);
  }
}

/** A list that is hidden while empty, and drawn again only when its lines change. What can wait is closed at first, so that it
 * doesn't push the incident off a small screen. */
class Told {
  #banner;
  #list;
  #shown = "";

  constructor(banner, list) {
    this.#banner = byId(banner);
    this.#list = byId(list);
  }

  show(lines) {
    const key = lines.join("\n");
    if (key === this.#shown) return;
    this.#shown = key;
    this.#banner.hidden = lines.length === 0;
    this.#banner.querySelector("summary")?.setAttribute("data-count", lines.length);
    this.#list.replaceChildren(...lines.map((line) => h("li", {}, line)));
  }
}
