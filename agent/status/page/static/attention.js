/** Links that need attention: down or degraded, grouped by cause, with the full reason and advice. */

import { byId, h, text } from "./dom.js";
import { duration, moment, plural } from "./format.js";
import { badge } from "./icons.js";
import { format } from "./router.js";
import { needsSomebody, stateOf } from "./states.js";

const CAUSES = 4;
const NAMED = 3;

export class Attention {
  #shown = "";
  #all = false;
  #ages = [];

  constructor() {
    byId("more-causes").addEventListener("click", () => {
      this.#all = !this.#all;
      this.#shown = "";
      this.onToggle();
    });
  }

  onToggle = () => {};

  show(rows, clock) {
    const causes = causesOf(rows);
    const key = JSON.stringify(causes.map((cause) => [cause.key, cause.rows.map((row) => [row.id, row.since])]));
    byId("attention").hidden = causes.length === 0;
    if (key !== this.#shown) this.#draw(causes);
    this.#shown = key;
    for (const { node, since } of this.#ages) text(node, duration((clock - since) / 1_000));
  }

  #draw(causes) {
    this.#ages = [];
    const shown = this.#all ? causes : causes.slice(0, CAUSES);
    byId("causes").replaceChildren(...shown.map((cause) => this.#cause(cause)));
    const more = byId("more-causes");
    more.hidden = causes.length <= CAUSES;
    text(more, this.#all ? "Show fewer" : `Show ${plural(causes.length - CAUSES, "more cause")}`);
    more.setAttribute("aria-expanded", String(this.#all));
  }

  #cause({ status, reason, rows }) {
    const since = Math.min(...rows.map((row) => row.since));
    const node = h("time", { datetime: new Date(since).toISOString(), title: moment(since) });
    const age = h("span", { class: "cause-since" }, "for ", node);
    this.#ages.push({ node, since });
    return h(
      "li",
      { class: "cause", "data-group": stateOf(status).group },
      h("div", { class: "cause-head" }, badge(status), age, namesOf(rows, status, reason)),
      h("p", { class: "cause-reason" }, reason || "No reason is known."),
      h("p", { class: "advice" }, stateOf(status).advice),
    );
  }
}

function causesOf(rows) {
  const causes = new Map();
  for (const row of rows) {
    if (!needsSomebody(row.view.status)) continue;
    const { status, error: reason } = row.view;
    const { severity } = row;
    const key = [status, reason].join("\n"); // a downstream that is away is one cause, however many upstreams there are
    if (!causes.has(key)) causes.set(key, { key, status, reason, severity, rows: [] });
    causes.get(key).rows.push(row);
  }
  return [...causes.values()].sort((one, other) => one.severity - other.severity || other.rows.length - one.rows.length);
}

/** A few links by name; if there are many, the first ones and a link to all. */
function namesOf(rows, status, reason) {
  const named = rows.slice(0, rows.length > NAMED ? NAMED - 1 : NAMED);
  const names = named.map((row) => h("li", {}, h("a", { href: format({ view: "link", id: row.id }) }, row.name)));
  if (rows.length > NAMED) {
    const sources = new Set(rows.map((row) => row.source));
    const [from, where] = sources.size === 1 ? [rows[0].source, ` from ${rows[0].source}`] : ["", ""];
    const rest = format({ view: "links", state: status, ...(from ? { from } : { q: reason }) });
    names.push(h("li", {}, h("a", { href: rest }, `all ${plural(rows.length, "link")}${where}`)));
  }
  return h("ul", { class: "names" }, ...names);
}
