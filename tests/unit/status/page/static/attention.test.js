import assert from "node:assert/strict";
import test from "node:test";

import { knownOf, leadsTo, lineOf, statusOf } from "#page/attention.js";
import { stateOf } from "#page/states.js";

import { rowsOf } from "./rows.js";

const down = (others) => ({ status: "backoff", error: "connection refused", ...others });
const labels = (rows) => leadsTo(rows).map(({ label }) => label);

test("links of a cause are told from others of their name", () => {
  const rows = rowsOf(down({ exchange: "orders", upstream_cluster: "rome" }), down({ exchange: "orders", upstream_cluster: "paris" }));
  assert.deepEqual(labels(rows), ["exchange orders in / from rome", "exchange orders in / from paris"]);
  assert.equal(leadsTo(rows)[1].href, "#/links/1");
});

test("the line of a cause says who knows of it", () => {
  const cause = { broker: "dc2", side: "downstream", headline: "memory alarm for 4 min, 6 of 13 links blocked", acknowledged: null };
  assert.equal(lineOf(cause), "dc2 (downstream): memory alarm for 4 min, 6 of 13 links blocked");
  assert.equal(lineOf({ ...cause, acknowledged: { by: "ann@ops" } }), `${lineOf(cause)}, acknowledged by ann@ops`);
});

test("when it is open, a cause that somebody knows says since when, until when and why, in the page's own zone", () => {
  const known = { by: "ann@ops", at: "2026-11-23T04:28:33Z", until: null, reason: "" };
  assert.equal(knownOf({ acknowledged: known }), "Acknowledged at 2026-11-23 10:13:33");
  const limited = { ...known, until: "2026-11-23T05:28:33Z", reason: "disk is ordered" };
  assert.equal(knownOf({ acknowledged: limited }), "Acknowledged at 2026-11-23 10:13:33, until 2026-11-23 11:13:33: disk is ordered");
  assert.equal(knownOf({ acknowledged: null }), "");
});

test("a cause is shown as the worst of its links, and never as well", () => {
  const behind = { critical_since: "2026-11-23T04:28:33Z" };
  const shown = (...those) => statusOf({ trouble: "connection lost", rows: rowsOf(...those) });
  assert.deepEqual([shown({}, behind), shown(behind, down({})), shown({}, {})], ["behind", "backoff", "interrupted"]);
  assert.equal(statusOf({ trouble: "further behind than lag-critical", rows: rowsOf({}) }), "behind");
  assert.deepEqual([shown({ status: "paused" }), statusOf({ trouble: "exchange deleted", rows: [] })], ["paused", "removing"]);
  assert.deepEqual(["behind", "interrupted"].map((status) => stateOf(status).group), ["degraded", "degraded"]);
});

test("links that are behind lead to those that are shown so", () => {
  const rows = rowsOf(...[1, 2, 3, 4].map(() => ({ critical_since: "2026-11-23T04:28:33Z" })));
  assert.equal(leadsTo(rows).at(-1).href, "#/links?state=behind&from=dc1");
});

test("many links of one upstream lead to all of it in these states", () => {
  const rows = rowsOf(down({}), down({}), down({}), down({ status: "invalid", error: "login refused" }));
  const [, , all] = leadsTo(rows);
  assert.equal(leadsTo(rows).length, 3);
  assert.deepEqual(all, { href: "#/links?state=backoff%2Cinvalid&from=dc1", label: "show all 4 links" });
});

test("many links of several upstreams lead to all with their error, where it is one", () => {
  const several = (error) => rowsOf(...[1, 2, 3, 4].map((at) => down({ upstream_cluster: `dc${at}`, error: error(at) })));
  const [shared] = leadsTo(several(() => "connection refused")).slice(-1);
  assert.deepEqual(shared, { href: "#/links?q=connection+refused&state=backoff", label: "show all 4 links" });
  const [others] = leadsTo(several((at) => `refused to x${at}`)).slice(-1);
  assert.deepEqual(others, { href: "#/links?state=backoff", label: "show all 4 links" });
});
