/** What happened lately, of all links together: changes of their states, the latest first. */

import { copyButton } from "./copy.js";
import { byId, h, set, text } from "./dom.js";
import { duration, plural } from "./format.js";
import { badge } from "./icons.js";
import { format, statesOf } from "./router.js";
import { GROUPS, STATES, stateOf } from "./states.js";
import { moment, zoneName } from "./zone.js";

const EVERY = 10_000; // ms
const SOON = 400;
const TOGETHER = 60_000; // changes of one kind within this time are one line
const KEPT = 2_000; // as the agent keeps
const SHOWN = 100;
const NAMED = 50;

export class Events {
  #api;
  #changes = [];
  #timer = 0;
  #readAt = -Infinity;
  #isReading = false;
  #most = SHOWN;
  #drawn = "";
  #items = new Map();
  #isRead = false;

  constructor(api, onChange) {
    this.#api = api;
    this.onChange = onChange;
    byId("event-states").append(...["", ...Object.keys(GROUPS)].map(optionOf));
    byId("more-events").addEventListener("click", () => {
      this.#most += SHOWN;
      onChange();
    });
  }

  /** The agent may be another process now, which counts from the beginning. */
  forget() {
    this.#changes = [];
    this.#readAt = -Infinity;
  }

  soon() {
    this.#timer ||= setTimeout(() => {
      this.#timer = 0;
      this.#read();
    }, SOON);
  }

  /** Called every second while this view is open. */
  tick() {
    if (performance.now() - this.#readAt > EVERY) this.#read();
  }

  async #read() {
    if (this.#isReading || document.body.dataset.connection !== "live") return;
    this.#isReading = true;
    this.#readAt = performance.now();
    const known = this.#changes;
    try {
      const found = await this.#api.get(`/api/transitions?after=${known.at(-1)?.seq ?? 0}`);
      if (known === this.#changes && found.length > 0) this.#changes = [...known, ...found.map(prepared)].slice(-KEPT);
      this.#isRead = true;
      this.onChange();
    } catch {
      // The connection shows whether the agent answers.
    } finally {
      this.#isReading = false;
    }
  }

  redraw() {
    this.#drawn = "";
    this.#items = new Map();
  }

  /** `rows` are all links by id: one that is gone has no page. */
  show(route, rows, clock) {
    if (byId("event-search").value !== route.q) byId("event-search").value = route.q;
    byId("event-states").value = groupOf(route);
    const key = JSON.stringify([this.#changes.at(-1)?.seq, this.#changes.length, format(route), this.#most, this.#isRead]);
    if (key !== this.#drawn) {
      const found = together(matching(this.#changes, route).reverse());
      byId("no-events").hidden = !this.#isRead || found.length > 0;
      byId("more-events").hidden = found.length <= this.#most;
      this.#draw(found.slice(0, this.#most), rows);
    }
    this.#drawn = key;
    const near = [...this.#items.values()].filter(({ node }) => isNear(node)); // all is measured before text changes
    for (const { lasted, end } of near) text(lasted, agoOf(end, clock));
  }

  #draw(groups, rows) {
    const isOpen = new Set([...byId("event-list").querySelectorAll("details[open]")].map(({ dataset }) => dataset.seq));
    const before = this.#items;
    this.#items = new Map(groups.map((group) => [keyOf(group), group]).map(([key, group]) => [key, before.get(key) ?? itemOf(group, rows, isOpen)]));
    arrange(byId("event-list"), [...this.#items.values()].map(({ node }) => node));
  }
}

/** Whether it can be seen, or soon after a little scrolling. */
function isNear(node) {
  const { top, bottom } = node.getBoundingClientRect();
  return bottom > -innerHeight && top < 2 * innerHeight;
}

/** Only what changed is moved: the rest needs no new layout. */
function arrange(list, nodes) {
  const wanted = new Set(nodes);
  for (const node of [...list.children]) if (!wanted.has(node)) node.remove();
  let place = list.firstChild;
  for (const node of nodes) {
    if (node === place) place = place.nextSibling;
    else list.insertBefore(node, place);
  }
}

/** What is needed of a change more than once. */
export const prepared = (change) => ({
  ...change,
  time: Date.parse(change.at),
  kind: JSON.stringify([change.status, change.reason, change.upstream_cluster ?? change.upstream]),
  search: searchOf(change),
});

const keyOf = ({ changes }) => `${changes[0].seq} ${changes.length}`;

const agoOf = (time, clock) => `${duration((clock - time) / 1_000)} ago`;

function optionOf(group) {
  return h("option", { value: group }, group === "" ? "all changes" : `to ${GROUPS[group].label}`);
}

/** The group whose states the route names, all of them; anything else is no choice of the list. */
export function groupOf(route) {
  const states = [...statesOf(route)];
  return Object.keys(GROUPS).find((group) => states.length > 0 && sameSet(statesIn(group), states)) ?? "";
}

export const statesIn = (group) => Object.keys(STATES).filter((status) => STATES[status].group === group);

const sameSet = (one, other) => one.length === other.length && one.every((each) => other.includes(each));

export function matching(changes, route) {
  const words = route.q.toLowerCase().split(/\s+/).filter(Boolean);
  const states = statesOf(route);
  return changes.filter(
    (change) =>
      (states.size === 0 || states.has(change.status)) && words.every((word) => change.search.includes(word)),
  );
}

const searchOf = ({ link, vhost, name, upstream, upstream_cluster, status, reason, error }) =>
  [link, vhost, name, upstream, upstream_cluster, status, reason, error].join("\n").toLowerCase();

/**
 * The latest first; links of one upstream that change alike, one soon after the other, are one line. The changes of
 * one link stay in their order.
 */
export function together(changes) {
  const found = [];
  const open = new Map();
  const lowest = new Map(); // of each link, the last line that has it
  for (const change of changes) {
    const { kind, time } = change;
    const group = open.get(kind);
    if (group && group.begin - time <= TOGETHER && (lowest.get(change.link) ?? -1) <= group.at) {
      group.changes.push(change);
      group.begin = time;
      lowest.set(change.link, group.at);
    } else {
      const made = { changes: [change], begin: time, end: time, at: found.length };
      lowest.set(change.link, made.at);
      found.push(made);
      open.set(kind, made);
    }
  }
  return found;
}

function itemOf({ changes, end }, rows, isOpen) {
  const [first] = changes;
  const links = new Map(changes.map((change) => [change.link, change]));
  const named = [...links.values()].slice(0, NAMED).map((change) => nameOf(change, rows));
  const rest = links.size > NAMED ? [h("li", {}, `and ${plural(links.size - NAMED, "more link")}`)] : [];
  const names = h("ul", { class: "names" }, ...named, ...rest);
  const source = first.upstream_cluster ?? first.upstream;
  const where = source ? ` from ${source}` : "";
  const what =
    links.size === 1
      ? h("p", {}, nameOf(first, rows, "span"), h("span", { class: "where" }, ` in ${first.vhost}${where}`))
      : h(
          "details",
          { "data-seq": changes.at(-1).seq, open: isOpen.has(String(changes.at(-1).seq)) },
          h("summary", {}, `${plural(links.size, "link")}${where}`),
          names,
        );
  const lasted = h("span", { class: "lasted" });
  const node = h(
    "li",
    { class: "event", "data-group": first.status ? stateOf(first.status).group : "off" },
    h("div", { class: "event-when" }, h("time", { datetime: first.at, title: zoneName(end) }, moment(end)), lasted),
    h("div", { class: "event-state" }, first.status ? badge(first.status) : h("span", { class: "badge" }, "Removed"), times(changes, links)),
    h("div", { class: "event-what" }, what, reasonOf(first)),
  );
  return { node, lasted, end };
}

/** How often, where that is more than once a link. */
const times = (changes, links) =>
  changes.length > links.size ? h("span", { class: "where" }, `${changes.length} times`) : null;

function nameOf({ link, name, vhost }, rows, tag = "li") {
  const inside = rows.has(link) ? h("a", { href: format({ view: "link", id: link }), title: vhost }, name) : name;
  return h(tag, {}, inside);
}

function reasonOf({ error, previous }) {
  if (error) return h("div", { class: "copied" }, h("p", { class: "step-reason" }, error), copyButton("the error", () => error));
  return previous ? h("p", { class: "where" }, `was ${stateOf(previous).label.toLowerCase()}`) : null;
}
