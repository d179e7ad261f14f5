import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { isLively, matching, ordered, rank } from "#page/filter.js";

import { routeOf, rowsOf } from "./rows.js";

const { links, order } = JSON.parse(readFileSync(new URL("../as_commands_do.json", import.meta.url)));
const namesOf = (rows) => rows.map((row) => row.name);
const sorted = (rows, sort) => namesOf(ordered([...rows], routeOf({ sort }), rank(rows), 0));

test("every word has to occur, in any case", () => {
  const rows = rowsOf({ exchange: "orders.eu" }, { exchange: "orders.us", vhost: "tenant" }, { exchange: "stock", vhost: "tenant" });
  assert.deepEqual(namesOf(matching(rows, routeOf({ q: "ORDERS tenant" }))), ["orders.us"]);
  assert.deepEqual(namesOf(matching(rows, routeOf({ q: "nothing-is-called-so" }))), []);
  assert.equal(matching(rows, routeOf({ q: "  " })).length, 3);
});

test("states and an upstream are exact", () => {
  const rows = rowsOf({ status: "invalid" }, { status: "backoff", upstream_cluster: "dc10" }, { status: "running" });
  assert.deepEqual(namesOf(matching(rows, routeOf({ state: "invalid,backoff" }))), ["x0", "x1"]);
  assert.deepEqual(namesOf(matching(rows, routeOf({ from: "dc1" }))), ["x0", "x2"]);
  const behind = rowsOf({ critical_since: "2026-11-23T04:28:33Z" }, {});
  assert.deepEqual(["behind", "running"].map((state) => namesOf(matching(behind, routeOf({ state })))), [["x0"], ["x1"]]);
});

test("an incident comes before what never worked, as in the command `links`", () => {
  const rows = rowsOf(...links);
  assert.deepEqual(ordered([...rows], routeOf(), rank(rows), 0).map(({ id }) => id), order);
});

test("rows are ordered by names and numbers, both ways; those that are equal keep their order", () => {
  const rows = rowsOf(
    { exchange: "x10", backlog: 5, rate: 1 },
    { exchange: "x9", backlog: null, rate: 3 },
    { exchange: "x2", backlog: 7, rate: 1 },
  );
  assert.deepEqual(sorted(rows, "name"), ["x2", "x9", "x10"]);
  assert.deepEqual(sorted(rows, "-name"), ["x10", "x9", "x2"]);
  assert.deepEqual(sorted(rows, "-lag"), ["x2", "x10", "x9"]);
  assert.deepEqual(sorted(rows, "rate"), ["x2", "x10", "x9"]);
});

test("orders by numbers change with every sample", () => {
  assert.deepEqual(["state", "name", "lag", "rate", "path", "owner"].filter(isLively), ["lag", "rate"]);
});
