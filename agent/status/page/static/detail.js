/** One link: its definition, state, reason, advice and recent history. */

import { byId, h, set, text } from "./dom.js";
import { chart, strip } from "./charts.js";
import { age, bytes, count, duration, exact, moment, NONE, rate } from "./format.js";
import { History } from "./history.js";
import { badge, showBadge } from "./icons.js";
import { stateOf } from "./states.js";
import { drawTimeline } from "./timeline.js";

const FACTS = [
  ["Kind", ({ view }) => view.kind],
  ["Virtual host", ({ view }) => view.vhost],
  ["Upstream", ({ view }) => view.upstream],
  ["Upstream address", ({ view }) => view.uri ?? NONE],
  ["Upstream cluster", ({ cluster }) => cluster ?? "not reached yet"],
  ["Policy", ({ view }) => view.policy || NONE],
  ["Run by", ({ view }) => view.owner ?? "another"],
  ["Id", ({ view }) => view.id],
];

const NUMBERS = [
  ["Rate", ({ series }, { now }) => rate(series.rate(now))],
  ["Waiting", ({ view }) => count(view.backlog)],
  ["Oldest unconfirmed", ({ view }) => age(view.oldest_unconfirmed_seconds)],
  ["In flight", ({ view }) => exact(view.in_flight)],
  ["Prefetch", ({ view }) => exact(view.prefetch)],
  ["Bindings", ({ view }) => exact(view.bindings)],
  ["Forwarded", ({ view }) => exact(view.forwarded)],
  ["Bytes", ({ view }) => bytes(view.bytes)],
  ["Redelivered", ({ view }) => exact(view.redelivered)],
  ["Returned", ({ view }) => exact(view.returned)],
  ["Dropped", ({ view }) => exact(view.dropped)],
  ["Quarantined", ({ view }) => exact(view.quarantined)],
  ["Reconnects", ({ view }) => exact(view.reconnects)],
  ["Last confirm", ({ view }, { clock }) => agoOf(view.last_confirm, clock)],
];

const ACTIONS = ["restart", "pause", "resume"];
const OFFERED = { paused: ["resume"], standby: ["pause"], terminated: ["restart"], stopping: [], removing: [] };

const CHARTS = {
  rate: { of: (history) => history.rates(), show: rate, label: "Messages per second" },
  lag: { of: (history) => history.lags(), show: count, label: "Messages waiting" },
  age: { of: (history) => history.ages(), show: duration, label: "Age of the oldest unconfirmed message" },
};

export class Detail {
  #id = null;
  #history = new History();
  #state = badge("starting");
  #values = new Map();
  #row = null;
  #load;

  /** `load(id)` returns the agent's history of a link, `act(action, row)` opens the confirmation of an action. */
  constructor({ load, act }) {
    this.#load = load;
    byId("detail-state").append(this.#state);
    for (const action of ACTIONS) {
      byId(`do-${action}`).addEventListener("click", () => act(action, this.#row));
    }
    for (const [list, entries] of [["facts", FACTS], ["numbers", NUMBERS]]) {
      for (const [name, value] of entries) {
        const node = h("dd");
        this.#values.set(node, value);
        byId(list).append(h("div", {}, h("dt", {}, name), node));
      }
    }
  }

  /** Shows another link. */
  open(id) {
    this.#id = id;
    this.#history = new History();
    byId("transitions").replaceChildren();
    text(byId("missing-reason"), "");
    this.refresh();
  }

  /** Loads the agent's history again; a failure leaves the rest unchanged. */
  async refresh() {
    const id = this.#id;
    try {
      const told = await this.#load(id);
      if (id !== this.#id) return;
      this.#history.take(told.history);
      drawTimeline(byId("transitions"), told.history.transitions);
    } catch (error) {
      if (!(error instanceof TypeError)) text(byId("missing-reason"), error.message);
    }
  }

  /** Called every second. */
  tick(row, clock) {
    if (row) this.#history.put(row.view, clock);
  }

  show(row, about, moments) {
    this.#row = row ?? null;
    text(byId("missing-id"), this.#id);
    if (!row) return;
    this.#showState(row, about.cluster, moments.clock);
    for (const [node, value] of this.#values) text(node, value(row, moments));
    this.#showCharts(moments.clock);
  }

  #showState(row, cluster, clock) {
    const { view } = row;
    text(byId("detail-title"), row.name);
    text(byId("hop-source"), `${row.source} / ${row.remote}`);
    text(byId("hop-target"), `${view.destination_uri || (cluster ?? "this cluster")} / ${row.target}`);
    showBadge(this.#state, view.status);
    text(byId("detail-since"), `since ${moment(row.since)}, for ${duration((clock - row.since) / 1_000)}`);
    text(byId("detail-reason"), view.error ?? "");
    text(byId("detail-advice"), stateOf(view.status).advice);
    const box = byId("diagnosis");
    set(box, "data-group", stateOf(view.status).group);
    box.hidden = !view.error && !stateOf(view.status).advice;
    this.#offer(view.status);
  }

  /** Hides actions without effect; moves the focus if its button is hidden. */
  #offer(status) {
    const offered = OFFERED[status] ?? ["restart", "pause"];
    const focused = document.activeElement;
    for (const action of ACTIONS) byId(`do-${action}`).hidden = !offered.includes(action);
    if (focused?.hidden) byId(offered.length > 0 ? `do-${offered[0]}` : "detail-title").focus();
  }

  #showCharts(clock) {
    const span = this.#history.span(clock);
    for (const [name, { of, show, label }] of Object.entries(CHARTS)) {
      const frame = byId(`${name}-chart`);
      const points = of(this.#history);
      const told = `${label}, now ${show(points.at(-1)?.[1] ?? null)}`;
      frame.replaceChildren(chart(points, { span, width: frame.clientWidth, show, label: told }));
    }
    const frame = byId("strip");
    frame.replaceChildren(strip(this.#history.transitions, { span, width: frame.clientWidth }));
  }
}

const agoOf = (time, clock) => (time ? `${duration((clock - Date.parse(time)) / 1_000)} ago` : "never");
