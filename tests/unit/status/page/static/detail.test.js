import assert from "node:assert/strict";
import test from "node:test";

import { aboutOf, lagOf, limitOf, lostOf, waitingOf } from "#page/detail.js";
import { NONE } from "#page/format.js";

import { viewOf } from "./rows.js";

test("a backlog that is not known any more is told with its age", () => {
  const at = "2026-11-23T04:28:33Z";
  const clock = Date.parse(at) + 61_000;
  const old = viewOf("a", { backlog: null, backlog_last: 849, backlog_last_at: at });
  assert.equal(waitingOf(old, clock), "last known 849, 1 min 1 s ago");
  assert.equal(waitingOf(viewOf("a"), clock), NONE);
  assert.equal(waitingOf(viewOf("a", { backlog: 7 }), clock), "7+");
});

test("a lag below a second is in milliseconds", () => {
  assert.deepEqual([0.0421, 3].map(lagOf), ["42 ms", "3 s"]);
});

test("a rate limit is shown with whether it holds messages back", () => {
  const limit = { messages: 500, bytes: 1_048_576 };
  assert.equal(limitOf({ rate_limit: limit, limited: false }), "500 messages/s and 1,048,576 bytes/s; holds nothing back now");
  assert.equal(limitOf({ rate_limit: { ...limit, bytes: null }, limited: true }), "500 messages/s; holds messages back now");
  assert.equal(limitOf({ rate_limit: null, limited: false }), null);
});

test("what was lost in conversion is shown by its kind, most first", () => {
  assert.equal(lostOf({ converted_with_loss: { footer: 1, "cluster-id": 1_204 } }), "cluster-id (1,204 messages); footer (1 message)");
  assert.equal(lostOf({ converted_with_loss: {} }), null);
});

test("advice is read again for another state or error, but not for a remark of a link that runs", () => {
  const about = (others) => aboutOf(viewOf("a", others));
  assert.equal(about({ error: "idle" }), about({ error: "busy" }));
  for (const others of [{ status: "paused" }, { incident: true }, { critical_since: "2026-11-23T04:28:33Z" }]) {
    assert.notEqual(about(others), about({}));
  }
  assert.notEqual(about({ status: "backoff", error: "one" }), about({ status: "backoff", error: "another" }));
});
