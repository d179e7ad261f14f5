/** The agent's data: its links with their recent history, and itself. Views read it; only the feed writes it. */

import { Series } from "./series.js";
import { needsSomebody, shownStatus, stateOf } from "./states.js";

/** One link: `view` is the agent's data, the rest is derived from it. */
class Row {
  constructor(view) {
    this.series = new Series();
    this.take(view);
  }

  take(view) {
    this.view = view;
    this.shown = shownStatus(view);
    this.id = view.id;
    this.source = view.upstream_cluster ?? (addressOf(view.uri) || view.upstream || "unknown");
    this.destination = view.destination_cluster ?? addressOf(view.destination_uri); // "" is this cluster before its name is known
    this.name = named(view.exchange ?? view.queue ?? view.name);
    this.remote = named(view.upstream_exchange ?? view.upstream_queue ?? view.source ?? "");
    this.target = view.destination ?? this.name; // a shovel's name isn't where its messages go
    this.since = Date.parse(view.since);
    this.severity = stateOf(view.status).severity;
    const words = [view.id, view.kind, view.vhost, this.name, this.remote, this.target, view.upstream, this.source, view.policy];
    const ends = view.kind === "shovel" ? [this.destination, view.destination_uri] : []; // others end in this cluster
    this.search = [...words, ...ends, view.uri, view.status, view.error, view.owner].join("\n").toLowerCase();
  }

  put(now) {
    this.series.put(this.view.forwarded, now);
  }
}

/** Events: `members` (which links there are), `links` (what one is), `samples` (numbers), `moved` (states), `about`. */
export class Store extends EventTarget {
  #rows = new Map();
  about = {};

  get rows() {
    return this.#rows;
  }

  get(id) {
    return this.#rows.get(id);
  }

  /** All links; after a reconnect they are sent again, and their known history stays. */
  replace(views, now) {
    const before = this.#rows;
    this.#rows = new Map();
    for (const view of views) {
      const row = before.get(view.id);
      if (row) this.#rows.set(view.id, row);
      this.#put(view, now);
    }
    this.#tell("members");
  }

  change(view, now) {
    const isKnown = this.#rows.has(view.id);
    this.#put(view, now);
    this.#tell(isKnown ? "links" : "members");
  }

  remove(id) {
    if (this.#rows.delete(id)) this.#tell("members");
  }

  sample(samples, now) {
    let isOther = false;
    for (const sample of samples) {
      const row = this.#rows.get(sample.id);
      if (!row) continue;
      isOther ||= row.view.incident !== sample.incident;
      Object.assign(row.view, sample);
      if (sample.backlog !== null) row.view.backlog_last = sample.backlog;
      row.put(now);
    }
    this.#tell(isOther ? "links" : "samples");
  }

  describe(about) {
    this.about = about;
    this.#tell("about");
  }

  #put(view, now) {
    const row = this.#rows.get(view.id);
    if (row) {
      const { shown: previous, view: { since } } = row;
      row.take(view);
      if (previous !== row.shown || since !== view.since) this.#tell("moved", { row, previous });
    } else {
      this.#rows.set(view.id, new Row(view));
    }
    this.#rows.get(view.id).put(now);
  }

  #tell(type, detail = null) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** A name of blanks alone would be invisible and impossible to click. */
const named = (name) => (name !== "" && name.trim() === "" ? JSON.stringify(name) : name);

/** `host:port`, which a broker is called until its cluster's name is known. */
export function addressOf(uri) {
  const [, scheme, host] = /^(amqps?):\/\/([^/]+)/i.exec(uri ?? "") ?? [];
  if (!host || /:\d+$/.test(host)) return host ?? "";
  return `${host}:${scheme.toLowerCase() === "amqps" ? 5671 : 5672}`;
}

/** The number of links that need attention. */
export const wanting = (rows) => rows.reduce((sum, row) => sum + (needsSomebody(row.shown) ? 1 : 0), 0);

/** Totals of all links: the number in each status, messages per second, messages known to wait. */
export function totals(rows, now) {
  const found = { links: 0, byStatus: new Map(), rate: 0, backlog: null, isExact: true, oldest: 0 };
  for (const row of rows) {
    found.links += 1;
    found.byStatus.set(row.shown, (found.byStatus.get(row.shown) ?? 0) + 1);
    found.rate += row.view.rate ?? 0;
    const backlog = row.view.backlog ?? row.view.backlog_last ?? null;
    if (backlog !== null) found.backlog = (found.backlog ?? 0) + backlog;
    found.isExact &&= row.view.backlog_is_exact !== false;
    found.oldest = Math.max(found.oldest, row.view.oldest_unconfirmed_seconds ?? 0);
  }
  return found;
}
