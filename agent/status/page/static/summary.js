/** The line above the table: how many links are in which state, the rate and the messages that wait. */

import { byId, h, set, text } from "./dom.js";
import { age, count, exact, rate } from "./format.js";
import { badge } from "./icons.js";
import { format, statesOf } from "./router.js";
import { SHOWN } from "./states.js";

const FIGURES = { links: "links", rate: "messages", backlog: "waiting", oldest: "oldest unconfirmed" };

/** A number only where one is known: of links of which nothing is known there is none, not even "at least 0". */
export const waitingIn = ({ backlog, isExact }) =>
  isExact || !backlog ? count(isExact ? backlog : null) : `at least ${count(backlog)}`;

export class Summary {
  #chips = new Map();
  #figures = {};

  constructor() {
    for (const [name, label] of Object.entries(FIGURES)) {
      this.#figures[name] = h("dd");
      byId("figures").append(h("div", {}, h("dt", {}, label), this.#figures[name]));
    }
    for (const status of SHOWN) {
      const number = h("span", { class: "number" });
      const link = h("a", { class: "chip" }, badge(status), number);
      const item = h("li", {}, link);
      this.#chips.set(status, { item, link, number });
      byId("states").append(item);
    }
  }

  /** States without links are hidden, unless they are filtered by. */
  show(total, route) {
    text(this.#figures.links, exact(total.links));
    text(this.#figures.rate, rate(total.rate));
    text(this.#figures.backlog, waitingIn(total));
    text(this.#figures.oldest, age(total.oldest));
    const chosen = statesOf(route);
    for (const [status, { item, link, number }] of this.#chips) {
      const found = total.byStatus.get(status) ?? 0;
      const isChosen = chosen.has(status);
      item.hidden = found === 0 && !isChosen;
      text(number, exact(found));
      set(link, "aria-current", isChosen ? "true" : null);
      const next = isChosen ? [...chosen].filter((each) => each !== status) : [...chosen, status];
      set(link, "href", format({ ...route, view: "links", state: next.join(",") }));
    }
  }
}
