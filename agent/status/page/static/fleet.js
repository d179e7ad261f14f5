/** This agent and its peers on one page: what is wrong with each, and both directions between two clusters. */

import { byId, h, text } from "./dom.js";
import { age, count, duration, exact, plural, rate } from "./format.js";
import { badge } from "./icons.js";
import { STATES, stateOf } from "./states.js";

const EVERY = 5_000; // ms
const LEVELS = {
  fine: ["running", "Fine"],
  starting: ["starting", "Starting"],
  degraded: ["blocked", "Degraded"],
  down: ["backoff", "Down"],
};
const collator = new Intl.Collator("en", { numeric: true });

export class Fleet {
  #api;
  #agents = null;
  #readAt = -Infinity;
  #isReading = false;
  #isDrawn = false;

  constructor(api, onChange) {
    this.#api = api;
    this.onChange = onChange;
  }

  /** Called when this view is opened, and every second while it is open. */
  tick() {
    if (performance.now() - this.#readAt > EVERY) this.#read();
  }

  async #read() {
    if (this.#isReading || document.hidden || document.body.dataset.connection !== "live") return;
    this.#isReading = true;
    this.#readAt = performance.now();
    try {
      this.#agents = (await this.#api.get("/api/fleet")).agents;
      this.#isDrawn = false;
      this.onChange();
    } catch {
      // The connection shows whether the agent answers; its last answer stays.
    } finally {
      this.#isReading = false;
    }
  }

  show(clock) {
    if (this.#agents === null || this.#isDrawn) return;
    this.#isDrawn = true;
    const focused = document.activeElement?.dataset?.key;
    byId("no-peers").hidden = this.#agents.length > 1;
    byId("agents").replaceChildren(...this.#agents.map((agent) => agentCard(agent, clock)));
    const pairs = pairsOf(this.#agents);
    byId("pairs-title").hidden = pairs.length === 0;
    byId("pairs").replaceChildren(...pairs.map(pairCard));
    if (focused) document.querySelector(`#view-fleet [data-key="${CSS.escape(focused)}"]`)?.focus();
  }
}

/** One agent: where its page is, what is wrong, its links by state. */
function agentCard({ url, summary, at, error }, clock) {
  const name = summary?.agent ?? url;
  const isStale = error !== null;
  const level = LEVELS[summary?.level];
  const shown = isStale || !level ? badgeOf("stalled", "Not reached") : badgeOf(...level);
  return h(
    "li",
    { class: "cause", "data-group": isStale ? "degraded" : stateOf(level?.[0]).group },
    h("p", { class: "fleet-head" }, shown, linkTo(url, name), summary ? h("span", { class: "where" }, whereOf(summary)) : null),
    isStale ? h("p", { class: "cause-reason" }, `${url} ${error}.`) : null,
    isStale && at ? h("p", { class: "advice" }, `What it reported ${duration((clock - Date.parse(at)) / 1_000)} ago:`) : null,
    summary ? h("p", {}, summary.unread ?? summary.verdict) : null,
  );
}

const whereOf = ({ cluster, version }) => `${cluster ? `beside ${cluster}` : "its cluster is not read yet"} · version ${version}`;

function linkTo(url, name) {
  if (url === null) return h("strong", {}, `${name} (this agent)`);
  return h("a", { href: `${url}/`, "data-key": url, target: "_blank", rel: "noreferrer" }, name);
}

function badgeOf(status, label) {
  const made = badge(status);
  text(made.lastChild, label);
  return made;
}

/** Two clusters with the links each way; agents of one cluster are added up. */
export function pairsOf(agents) {
  const heard = agents.filter(({ summary }) => summary !== null);
  const own = new Set(heard.map(({ summary }) => summary.cluster).filter(Boolean));
  const ways = new Map();
  for (const { summary, error } of heard) {
    for (const edge of summary.edges) {
      const target = edge.destination ?? summary.cluster ?? summary.agent; // an earlier release knows no destination
      const key = JSON.stringify([edge.upstream, target]);
      const way = ways.get(key) ?? emptyWay(edge.upstream, target);
      ways.set(key, added(way, edge, error !== null));
    }
  }
  const found = new Map();
  for (const way of ways.values()) {
    const [one, other] = [way.from, way.to].sort(collator.compare);
    const key = JSON.stringify([one, other]);
    const both = [[one, other], [other, one]].slice(one === other ? 1 : 0).map(
      ([from, to]) => ways.get(JSON.stringify([from, to])) ?? { ...emptyWay(from, to), isUnknown: !own.has(to) },
    );
    found.set(key, { one, other, ways: both, severity: Math.min(...both.map(severityOf)) });
  }
  return [...found.values()].sort((a, b) => a.severity - b.severity || collator.compare(a.one + a.other, b.one + b.other));
}

const emptyWay = (from, to) => ({ from, to, links: {}, rate: 0, waiting: 0, isExact: true, oldest: 0, isStale: false });

function added(way, edge, isStale) {
  const links = { ...way.links };
  for (const [status, number] of Object.entries(edge.links)) links[status] = (links[status] ?? 0) + number;
  return {
    ...way,
    links,
    rate: way.rate + edge.rate,
    waiting: way.waiting + edge.waiting,
    isExact: way.isExact && edge.is_exact,
    oldest: Math.max(way.oldest, edge.oldest_unconfirmed_seconds),
    isStale: way.isStale || isStale,
  };
}

function waitingOf({ waiting, isExact }) {
  if (isExact) return `${count(waiting)} waiting`;
  return waiting > 0 ? `at least ${count(waiting)} waiting` : "how many wait is not known";
}

const severityOf = (way) =>
  Object.keys(way.links).reduce((least, status) => Math.min(least, stateOf(status).severity), 99);

function pairCard({ one, other, ways }) {
  return h("li", { class: "pair" }, h("h3", {}, `${one} ⇄ ${other}`), ...ways.map(wayLine));
}

function wayLine(way) {
  const number = Object.values(way.links).reduce((sum, each) => sum + each, 0);
  const states = Object.keys(STATES).filter((status) => way.links[status]);
  const worst = states[0] ?? "";
  const head = h("span", { class: "way" }, `${way.from} → ${way.to}`);
  if (number === 0) {
    const told = way.isUnknown ? `not known: no agent beside ${way.to} is among the peers` : "no links";
    return h("p", { class: "way-line", "data-group": "off" }, head, h("span", { class: "where" }, told));
  }
  const parts = [
    rate(way.rate),
    waitingOf(way),
    way.oldest > 0 ? `oldest unconfirmed ${age(way.oldest)}` : "",
    way.isStale ? "as last known" : "",
  ];
  return h(
    "p",
    { class: "way-line", "data-group": stateOf(worst).group },
    head,
    h("span", {}, plural(number, "link")),
    h("span", { class: "way-states" }, ...states.map((status) => badgeOf(status, `${exact(way.links[status])} ${stateOf(status).label.toLowerCase()}`))),
    h("span", { class: "where" }, parts.filter(Boolean).join(" · ")),
  );
}
