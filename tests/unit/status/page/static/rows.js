/** Links as the agent's API shows them, and as the page keeps them. */

import { Store } from "#page/store.js";

// Node 18 has none.
globalThis.CustomEvent ??= class extends Event {
  constructor(type, { detail = null } = {}) {
    super(type);
    this.detail = detail;
  }
};

/** `viewOf("00000001", { status: "backoff" })`: all else is that of a link that runs and is idle. */
export const viewOf = (id, others = {}) => ({
  id,
  kind: "exchange",
  vhost: "/",
  exchange: `x${id}`,
  upstream_exchange: `x${id}`,
  upstream: "origin",
  upstream_cluster: "dc1",
  destination_cluster: "dc2",
  uri: "amqp://origin.example:5672/%2f",
  policy: "federate",
  status: "running",
  error: null,
  since: "2026-11-23T04:28:33Z",
  owner: "dc2-a",
  forwarded: 0,
  rate: 0,
  in_flight: 0,
  reconnects: 0,
  quarantined: 0,
  backlog: null,
  backlog_last: null,
  backlog_last_at: null,
  backlog_is_exact: false,
  oldest_unconfirmed_seconds: 0,
  incident: false,
  critical_since: null,
  ...others,
});

/** A shovel, which may lead from any cluster to any other: `shovelOf({ destination_cluster: "dc3" })`. */
export const shovelOf = (others = {}) => ({
  kind: "shovel", exchange: undefined, upstream_exchange: undefined, upstream: "", name: "move",
  source: "queue from", destination: "queue to", destination_uri: "amqp://dc2.example:5672/%2f", ...others,
});

/** The rows of these views: `rowsOf({ status: "paused" }, { rate: 3 })`. */
export function rowsOf(...those) {
  const store = new Store();
  store.replace(those.map((others, at) => viewOf(others.id ?? String(at), others)), 0);
  return [...store.rows.values()];
}

export const routeOf = (others = {}) => ({ view: "links", q: "", state: "", from: "", sort: "", range: "", open: "", ...others });
