import assert from "node:assert/strict";
import test from "node:test";

import { format, parse, sortOf, statesOf } from "#page/router.js";

import { routeOf } from "./rows.js";

test("an address leads back to what it was made of", () => {
  for (const route of [
    routeOf({ q: "a b&c=d#e?f/g%", state: "invalid,backoff", from: "dc 1", sort: "-lag" }),
    routeOf({ view: "link", id: "1a2b3c4d", range: "1h" }),
    routeOf({ view: "link", id: "a/b c" }),
    routeOf({ view: "topology", open: "up,-down" }),
    routeOf({ view: "events", q: "x" }),
    routeOf({ view: "fleet" }),
  ]) {
    assert.deepEqual(parse(format(route)), route);
  }
});

test("any other address is the list in its own order", () => {
  for (const address of ["", "#", "#/", "#/nowhere", "#/links?sort=evil", "#main"]) {
    assert.equal(parse(address).view, "links", address);
    assert.deepEqual(sortOf(parse(address)), { key: "state", descending: false }, address);
  }
});

test("a malformed id is taken as it is", () => {
  assert.equal(parse("#/links/%E0%A4").id, "%E0%A4");
});

test("an order and states are read from the address", () => {
  assert.deepEqual(sortOf(parse("#/links?sort=-lag")), { key: "lag", descending: true });
  assert.deepEqual([...statesOf(parse("#/links?state=invalid,,backoff"))], ["invalid", "backoff"]);
});
