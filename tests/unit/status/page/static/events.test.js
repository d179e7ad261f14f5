import assert from "node:assert/strict";
import test from "node:test";

import { groupOf, matching, prepared, statesIn, together } from "#page/events.js";

import { routeOf } from "./rows.js";

let seq = 0;
const change = (seconds, link, status, others = {}) => {
  seq += 1;
  const at = new Date(seconds * 1_000).toISOString();
  const told = { seq, at, link, vhost: "/", name: `x${link}`, upstream: "paris", upstream_cluster: null, previous: null };
  return prepared({ ...told, reason: "connection", error: null, status, ...others });
};
/** The latest first, as the view asks for it. */
const linesOf = (...changes) => together([...changes].reverse()).map((line) => line.changes.map(({ link }) => link).join(""));

test("links of one upstream that change alike within a minute are one line", () => {
  assert.deepEqual(linesOf(change(0, "a", "backoff"), change(40, "b", "backoff"), change(90, "c", "backoff")), ["cba"]);
  assert.deepEqual(linesOf(change(0, "a", "backoff"), change(61, "b", "backoff")), ["b", "a"]);
});

test("what is of another state, reason or upstream is a line of its own", () => {
  assert.deepEqual(linesOf(change(0, "a", "backoff"), change(1, "b", "stalled"), change(2, "c", "backoff")), ["ca", "b"]);
  assert.deepEqual(linesOf(change(0, "a", "backoff"), change(1, "b", "backoff", { upstream: "oslo" })), ["b", "a"]);
  assert.deepEqual(linesOf(change(0, "a", "backoff"), change(1, "b", "backoff", { reason: "login" })), ["b", "a"]);
});

test("the changes of one link stay in their order", () => {
  const lines = linesOf(change(0, "a", "backoff"), change(1, "a", "running"), change(2, "b", "running"), change(3, "b", "backoff"));
  assert.deepEqual(lines, ["b", "ba", "a"]);
});

test("changes are found by words and by the states of a group", () => {
  const changes = [change(0, "a", "backoff", { error: "Connection refused" }), change(1, "b", "invalid"), change(2, "c", "running")];
  const found = (filter) => matching(changes, routeOf(filter)).map(({ link }) => link).join("");
  assert.equal(found({ q: "REFUSED paris" }), "a");
  assert.equal(found({ state: statesIn("down").join(",") }), "ab");
  assert.equal(found({ q: "xc", state: "backoff" }), "");
});

test("the choice of the list is the group whose states the address names, all of them", () => {
  assert.equal(groupOf(routeOf({ state: statesIn("down").reverse().join(",") })), "down");
  assert.deepEqual(["", "backoff", "running,backoff"].map((state) => groupOf(routeOf({ state }))), ["", "", ""]);
});
