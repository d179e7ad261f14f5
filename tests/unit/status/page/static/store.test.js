import assert from "node:assert/strict";
import test from "node:test";

import { rowsOf, shovelOf, viewOf } from "./rows.js";
import { Store, totals, wanting } from "#page/store.js";

const BEHIND = { critical_since: "2026-11-23T04:28:33Z" };

/** What the store tells while `work` is done. */
function toldBy(store, work) {
  const told = [];
  const hear = ({ type, detail }) => told.push(type === "moved" ? [type, detail.previous] : type);
  for (const type of ["members", "links", "samples", "moved", "about"]) store.addEventListener(type, hear);
  work();
  for (const type of ["members", "links", "samples", "moved", "about"]) store.removeEventListener(type, hear);
  return told;
}

function storeOf(...views) {
  const store = new Store();
  store.replace(views, 0);
  return store;
}

test("it tells which links there are, what one is, and that its state changed", () => {
  const store = storeOf(viewOf("a"));
  assert.deepEqual(toldBy(store, () => store.change(viewOf("b"), 1)), ["members"]);
  assert.deepEqual(toldBy(store, () => store.change(viewOf("b", { error: "idle" }), 2)), ["links"]);
  assert.deepEqual(toldBy(store, () => store.change(viewOf("b", { status: "backoff" }), 3)), [["moved", "running"], "links"]);
  assert.deepEqual(toldBy(store, () => store.change(viewOf("b", { status: "running", ...BEHIND }), 4)), [["moved", "backoff"], "links"]);
  assert.deepEqual(toldBy(store, () => store.change(viewOf("b"), 5)), [["moved", "behind"], "links"]);
  assert.deepEqual(toldBy(store, () => store.remove("b")), ["members"]);
  assert.deepEqual(toldBy(store, () => store.remove("b")), []);
  assert.deepEqual([...store.rows.keys()], ["a"]);
});

test("numbers change without the rest, and an incident is more than a number", () => {
  const store = storeOf(viewOf("a", { backlog: 3, backlog_last: 3 }));
  const sample = { id: "a", forwarded: 7, backlog: 5, incident: false };
  assert.deepEqual(toldBy(store, () => store.sample([sample, { id: "gone", incident: true }], 1)), ["samples"]);
  store.sample([{ ...sample, backlog: null }], 2);
  assert.deepEqual([store.get("a").view.forwarded, store.get("a").view.backlog, store.get("a").view.backlog_last], [7, null, 5]);
  assert.deepEqual(toldBy(store, () => store.sample([{ ...sample, incident: true }], 3)), ["links"]);
});

test("after a reconnect all links are sent again, and what is known of their past stays", () => {
  const store = storeOf(viewOf("a"), viewOf("b"));
  const { series } = store.get("a");
  store.replace([viewOf("a", { status: "backoff" })], 1);
  assert.equal(store.get("a").series, series);
  assert.equal(store.get("a").severity, 1);
  assert.deepEqual([...store.rows.keys()], ["a"]);
});

test("a broker is called by its address until its cluster's name is known", () => {
  const [known, unknown, own] = rowsOf(
    shovelOf({ upstream_cluster: "dc1", destination_cluster: "dc3" }),
    shovelOf({ upstream_cluster: null, destination_cluster: null, destination_uri: "amqps://[::1]/v" }),
    { uri: null, upstream_cluster: null, destination_cluster: null },
  );
  assert.deepEqual([known.source, known.destination], ["dc1", "dc3"]);
  assert.deepEqual([unknown.source, unknown.destination], ["origin.example:5672", "[::1]:5671"]);
  assert.deepEqual([own.source, own.destination], ["origin", ""]);
  assert.ok(known.search.includes("dc3") && unknown.search.includes("[::1]:5671"));
});

test("what a row is called and found by", () => {
  const [blank, queue, shovel] = rowsOf(
    { exchange: " " },
    { kind: "queue", exchange: undefined, queue: "jobs", upstream_exchange: undefined, upstream_queue: "jobs there" },
    shovelOf({ upstream_cluster: null }),
  );
  assert.deepEqual([blank.name, queue.name, queue.remote, queue.target], ['" "', "jobs", "jobs there", "jobs"]);
  assert.deepEqual([shovel.name, shovel.remote, shovel.target], ["move", "queue from", "queue to"]);
  assert.equal(shovel.source, "origin.example:5672");
  for (const word of ["shovel", "move", "queue from", "queue to", "federate", "origin.example", "running", "dc2-a"]) {
    assert.ok(shovel.search.includes(word), word);
  }
});

test("totals add what is known and say whether it is all", () => {
  const rows = rowsOf(
    { status: "backoff", rate: 0, backlog: null, backlog_last: 40 },
    { rate: 2.5, backlog: 1, backlog_last: 1, backlog_is_exact: true, oldest_unconfirmed_seconds: 9 },
    { rate: 1, oldest_unconfirmed_seconds: 61 },
  );
  const { byStatus, ...others } = totals(rows, 0);
  assert.deepEqual(others, { links: 3, rate: 3.5, backlog: 41, isExact: false, oldest: 61 });
  assert.deepEqual([...byStatus], [["backoff", 1], ["running", 2]]);
  assert.equal(totals(rowsOf({}), 0).backlog, null);
  assert.equal(wanting(rowsOf({ status: "stalled" }, { status: "invalid" }, { status: "starting" }, {})), 2);
});

test("a link that is behind counts as such, not as one that is well", () => {
  const rows = rowsOf(BEHIND, {}, { status: "backoff", ...BEHIND });
  assert.deepEqual([...totals(rows, 0).byStatus], [["behind", 1], ["running", 1], ["backoff", 1]]);
  assert.equal(wanting(rows), 2);
});
