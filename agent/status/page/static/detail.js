/** One link: its definition, state, reason, advice and recent history. */

import { ACTIONS, offered } from "./actions.js";
import { address, byId, h, set, text } from "./dom.js";
import { ceiling, ceilingOfSeconds, Chart, Cursor, strip } from "./charts.js";
import { advised, copyButton } from "./copy.js";
import { age, bytes, count, duration, exact, NONE, plural, rate, waiting } from "./format.js";
import { History, RANGES } from "./history.js";
import { badge, showBadge } from "./icons.js";
import { commandFor, moveFor, showQuarantined } from "./quarantine.js";
import { format } from "./router.js";
import { needsSomebody, stateOf } from "./states.js";
import { drawTimeline } from "./timeline.js";
import { zoned } from "./zone.js";

/** Null of a shovel, which has no such thing; what is null isn't shown. */
const federated = (value) => (row, moments) => (row.view.kind === "shovel" ? null : value(row, moments));

const FACTS = [
  ["Kind", ({ view }) => view.kind],
  ["Virtual host", ({ view }) => view.vhost],
  ["Upstream", federated(({ view }) => view.upstream)],
  ["Upstream cluster", ({ view }) => view.upstream_cluster ?? "not known yet"],
  ["Destination cluster", ({ view }) => view.destination_cluster ?? "not known yet"],
  ["Policy", federated(({ view }) => view.policy || NONE)],
  ["Rate limit", ({ view }) => limitOf(view)],
  ["Run by", ({ view }) => view.owner ?? "another"],
];

/** Lines of their own, to be copied. */
const COPIED = [
  ["Upstream address", "the address", ({ view }) => view.uri],
  ["Destination address", "the address", ({ view }) => view.destination_uri], // of a shovel
  ["Id", "the id", ({ view }) => view.id],
];

const NUMBERS = [
  ["Rate", ({ view }) => rate(view.rate)],
  ["Waiting", ({ view }, { clock }) => waitingOf(view, clock)],
  ["Oldest unconfirmed", ({ view }) => age(view.oldest_unconfirmed_seconds)],
  ["Lag of the last probe", federated(({ view }) => (view.last_probe ? lagOf(view.lag_seconds) : NONE))],
  ["Last probe", federated(({ view }, { clock }) => (view.last_probe ? agoOf(view.last_probe, clock) : NONE))],
  ["In flight", ({ view }) => exact(view.in_flight)],
  ["Prefetch", ({ view }) => exact(view.prefetch)],
  ["Bindings", federated(({ view }) => exact(view.bindings))],
  ["Forwarded", ({ view }) => exact(view.forwarded)],
  ["Bytes", ({ view }) => bytes(view.bytes)],
  ["Redelivered", ({ view }) => exact(view.redelivered)],
  ["Returned", ({ view }) => exact(view.returned)],
  ["Dropped", ({ view }) => exact(view.dropped)],
  ["Quarantined", ({ view }) => exact(view.quarantined)],
  ["Lost in conversion", ({ view }) => lostOf(view)],
  ["Reconnects", ({ view }) => exact(view.reconnects)],
  ["Last confirm", ({ view }, { clock }) => agoOf(view.last_confirm, clock)],
];

export const waitingOf = (view, clock) =>
  view.backlog === null && view.backlog_last !== null
    ? `last known ${count(view.backlog_last)}, ${agoOf(view.backlog_last_at, clock)}`
    : waiting(view);

/** `500 messages/s and 1,048,576 bytes/s; holds nothing back now`, null without a limit. */
export function limitOf({ rate_limit: limit, limited }) {
  if (!limit) return null;
  const most = ["messages", "bytes"].filter((unit) => limit[unit] !== null).map((unit) => `${exact(limit[unit])} ${unit}/s`);
  return `${most.join(" and ")}; holds ${limited ? "messages" : "nothing"} back now`;
}

/** What messages lost, most first, null if nothing; the numbers have no sum, as one message may lose several things. */
export function lostOf({ converted_with_loss: losses }) {
  const found = Object.entries(losses).sort(([, a], [, b]) => b - a);
  return found.map(([what, messages]) => `${what} (${plural(messages, "message")})`).join("; ") || null;
}

const REREAD = 30_000; // ms; the agent's record of a long range
const CHARTS = {
  rate: {
    of: (history) => history.rates(),
    current: (view) => view.rate,
    show: rate,
    label: "Messages per second",
    ceiling,
  },
  lag: {
    of: (history) => history.lags(),
    current: (view) => view.backlog,
    show: count,
    label: "Messages waiting",
    ceiling,
  },
  age: {
    of: (history) => history.ages(),
    current: (view) => view.oldest_unconfirmed_seconds,
    show: duration,
    label: "Age of the oldest unconfirmed message",
    ceiling: ceilingOfSeconds,
  },
};

export class Detail {
  #id = null;
  #history = new History();
  #state = badge("starting");
  #values = new Map();
  #lines = new Map();
  #row = null;
  #load;
  #range = "15m";
  #readAt = 0;
  #advised = null;
  #asked = "";
  #charts = [];

  /** `load(id, range)` returns the agent's history of a link, `act(action, row)` opens the confirmation of an action. */
  constructor({ load, act }) {
    this.#load = load;
    byId("detail-state").append(this.#state);
    for (const action of Object.keys(ACTIONS)) {
      byId(`do-${action}`).addEventListener("click", () => act(action, this.#row));
    }
    const cursor = new Cursor();
    for (const [name, options] of Object.entries(CHARTS)) {
      this.#charts.push({ ...options, chart: new Chart(name, cursor, options) });
    }
    for (const [list, entries] of [["facts", FACTS], ["numbers", NUMBERS]]) {
      for (const [name, value] of entries) {
        const node = h("dd");
        this.#values.set(node, value);
        byId(list).append(h("div", {}, h("dt", {}, name), node));
      }
    }
    byId("facts").append(...COPIED.map((entry) => this.#copied(...entry)));
    byId("detail-reason").after(copyButton("the error", () => this.#row.view.error));
    byId("copy-quarantine").append(copyButton("the command", () => commandFor(this.#row.id)));
    byId("copy-quarantine-move").append(copyButton("the command", () => moveFor(this.#row)));
  }

  #copied(name, what, value) {
    const node = h("span");
    this.#lines.set(node, value);
    const button = copyButton(what, () => value(this.#row) ?? "");
    return h("div", { class: "wide" }, h("dt", {}, name), h("dd", { class: "copied" }, node, button));
  }

  /** Shows another link. */
  open(route) {
    if (this.#id !== route.id) byId("transitions").replaceChildren();
    this.#id = route.id;
    this.#range = route.range in RANGES ? route.range : "15m";
    this.#history = new History();
    this.#advised = null;
    text(byId("missing-reason"), "");
    this.#showRanges(route);
    this.refresh();
  }

  #showRanges(route) {
    const items = Object.entries(RANGES).map(([range, { label }]) => {
      const href = format({ ...route, range: range === "15m" ? "" : range });
      return h("li", {}, h("a", { class: "chip", href, "aria-current": range === this.#range ? "true" : null }, label));
    });
    byId("ranges").replaceChildren(...items);
  }

  /** Loads the agent's history again; a failure leaves the rest unchanged. */
  async refresh() {
    const [id, range] = [this.#id, this.#range];
    this.#readAt = performance.now();
    try {
      const told = await this.#load(id, range);
      if (id !== this.#id || range !== this.#range) return;
      this.#history.take(told.history);
      this.#advised = { about: aboutOf(told), status: told.status, advice: told.advice };
      drawTimeline(byId("transitions"), told.history.transitions);
    } catch (error) {
      if (!(error instanceof TypeError)) text(byId("missing-reason"), error.message);
    }
  }

  /** Times are shown in another zone. */
  redraw() {
    drawTimeline(byId("transitions"), this.#history.transitions);
  }

  /** Called every second. */
  tick(row, clock) {
    if (row) this.#history.put(row.view, clock);
    if (this.#range !== "15m" && performance.now() - this.#readAt > REREAD) this.refresh();
  }

  show(row, about, moments) {
    this.#row = row ?? null;
    text(byId("missing-id"), this.#id);
    if (!row) return;
    this.#showState(row, about.cluster, moments.clock);
    for (const [node, value] of this.#values) {
      const shown = value(row, moments);
      node.parentElement.hidden = shown === null;
      text(node, shown ?? "");
    }
    for (const [node, value] of this.#lines) {
      const shown = value(row) ?? "";
      node.closest(".wide").hidden = shown === "";
      if (node.dataset.shown !== shown) node.replaceChildren(h("span", {}, ...address(shown)));
      node.dataset.shown = shown;
    }
    showQuarantined(row);
    this.#showCharts(moments.clock);
  }

  #showState(row, cluster, clock) {
    const { view } = row;
    text(byId("detail-title"), row.name);
    text(byId("hop-source"), `${row.source} / ${row.remote}`);
    text(byId("hop-target"), `${row.destination || (cluster ?? "this cluster")} / ${row.target}`);
    showBadge(this.#state, row.shown);
    text(byId("detail-since"), `since ${zoned(row.since)}, for ${duration((clock - row.since) / 1_000)}`);
    text(byId("detail-reason"), view.error ?? "");
    byId("detail-reason").parentElement.hidden = !view.error;
    this.#showAdvice(row);
    this.#offer(view.status);
  }

  /** Reads the agent's advice again when it may be another one; until then the last one for this state stays. */
  #showAdvice({ view, shown: status }) {
    const about = aboutOf(view);
    if (this.#advised && this.#advised.about !== about && this.#asked !== about) {
      this.#asked = about;
      this.refresh();
    }
    const { group, meaning = "" } = stateOf(status);
    const told = this.#advised?.status === view.status ? this.#advised.advice : null;
    const shown = told ?? meaning;
    const node = byId("detail-advice");
    if (node.dataset.shown !== shown) node.replaceChildren(h("span", {}, ...advised(shown)));
    node.dataset.shown = shown;
    const box = byId("diagnosis");
    set(box, "data-group", told && group === "up" ? "degraded" : group);
    box.hidden = !view.error && !shown;
  }

  /** Hides actions without effect; moves the focus if its button is hidden. */
  #offer(status) {
    const actions = offered(status);
    const focused = document.activeElement;
    for (const action of Object.keys(ACTIONS)) byId(`do-${action}`).hidden = !actions.includes(action);
    if (focused?.hidden) byId(actions.length > 0 ? `do-${actions[0]}` : "detail-title").focus();
  }

  #showCharts(clock) {
    const span = this.#history.span(clock);
    for (const { of, current, chart } of this.#charts) chart.show(of(this.#history), span, current(this.#row.view));
    const frame = byId("strip");
    frame.replaceChildren(strip(this.#history.transitions, { span, width: frame.clientWidth }));
  }
}

/** What advice depends on. Of a link without trouble the error is a remark, which may change every second. */
export const aboutOf = ({ status, error, incident, critical_since }) =>
  JSON.stringify([status, needsSomebody(status) ? error : null, incident, critical_since !== null]);

export const lagOf = (seconds) => (seconds < 1 ? `${Math.round(seconds * 1_000)} ms` : duration(seconds));

const agoOf = (time, clock) => (time ? `${duration((clock - Date.parse(time)) / 1_000)} ago` : "never");
