import assert from "node:assert/strict";
import test from "node:test";

import { describe, hrefOf, hrefWith, labelOf, openOf } from "#page/topology.js";

import { routeOf, rowsOf, shovelOf } from "./rows.js";

const ROOMY = 60;
const [orders, shovel] = rowsOf({ id: "0000000a", exchange: "orders", status: "stalled" }, shovelOf());
const ends = { source: { name: "dc 1" }, destination: { name: "dc2", isOwn: true } };
const single = { ...ends, group: "degraded", rows: [orders] };
const bundle = { ...ends, group: "down", rows: rowsOf(...Array.from({ length: 5 }, () => ({ status: "backoff" }))) };

test("an arrow names its link or how many it stands for, and what flows", () => {
  assert.equal(labelOf(single, 0, ROOMY), "orders");
  assert.equal(labelOf(single, 1_234, ROOMY), "orders · 1,234/s");
  assert.equal(labelOf(bundle, 2.5, ROOMY), "5 links · 2.5/s");
  assert.equal(labelOf({ ...single, rows: [shovel] }, 0, ROOMY), "move");
  assert.equal(labelOf({ ...single, rows: rowsOf({ exchange: "x".repeat(99) }) }, 0, 16), `${"x".repeat(9)}…`);
});

test("links that are behind are read aloud as such, and found among those that are degraded", () => {
  const rows = rowsOf(...["orders", "stock"].map((exchange) => ({ exchange, critical_since: "2026-11-23T04:28:33Z" })));
  assert.equal(describe({ ...single, rows: rows.slice(1) }, 0), "stock from dc 1 to dc2: behind, 0/s");
  assert.equal(hrefOf({ ...single, rows }), "#/links?state=stalled%2Cblocked%2Cbehind&from=dc+1");
});

test("where there is little room, only the number or the rate is left", () => {
  assert.deepEqual([labelOf(single, 2.5, 0), labelOf(single, 0, 0), labelOf(bundle, 2.5, 0)], ["2.5/s", "", "5 ×"]);
});

test("an arrow is read aloud with its state, and leads to what it stands for", () => {
  assert.equal(describe(single, 0), "orders from dc 1 to dc2: stalled, 0/s");
  assert.equal(describe(bundle, 3), "5 links from dc 1 to dc2 down, 3.0/s");
  assert.equal(hrefOf(single), "#/links/0000000a");
  assert.equal(hrefOf(bundle), "#/links?state=invalid%2Cbackoff&from=dc+1");
  assert.equal(hrefOf({ ...bundle, source: { isRest: true } }), "#/links?state=invalid%2Cbackoff");
  assert.equal(hrefOf({ ...bundle, destination: { name: "dc3" } }), "#/links?q=dc3&state=invalid%2Cbackoff&from=dc+1");
});

test("the address keeps which states are shown each or as one", () => {
  const route = routeOf({ view: "topology", open: "up,-down" });
  assert.deepEqual([...openOf(route)], [["up", true], ["down", false]]);
  assert.equal(hrefWith(route, "up", false), "#/topology?open=-up%2C-down");
  assert.equal(hrefWith(route, "off", true), "#/topology?open=up%2C-down%2Coff");
});
