import assert from "node:assert/strict";
import test from "node:test";

import { described } from "#page/standby.js";
import { choose } from "#page/zone.js";

const VIEW = {
  of: "origin",
  in_step: true,
  why_not: [],
  promoted: null,
  links: 14,
  waiting: 0,
  lag_seconds: 0.02,
  repeats_at_most: 1204,
  not_here: 0,
  in_doubt: 0,
  first_in_doubt: [],
};
const numbers = (view) => described(view).figures.map(([, number]) => number);

test("one in step, with numbers and what a promotion would do", () => {
  const found = described(VIEW);
  assert.equal(found.verdict, "In step with origin");
  assert.deepEqual([found.why, found.inDoubt], [[], ""]);
  assert.deepEqual(numbers(VIEW), ["< 1 s", "14", "0", "1,204"]);
  assert.ok(found.advice.some((line) => line.includes("standby promote -c FILE --failover --dry-run")));
});

test("what the source holds and isn't here is counted", () => {
  assert.deepEqual(described({ ...VIEW, not_here: 7 }).figures.at(-1), ["or more of the source's messages aren't here", "7"]);
});

test("what isn't known is no number", () => {
  assert.deepEqual(numbers({ ...VIEW, lag_seconds: null, waiting: null, repeats_at_most: null }), ["–", "14", "–", "–"]);
  assert.equal(numbers({ ...VIEW, lag_seconds: 75 })[0], "1 min 15 s");
});

test("one that isn't in step says why, and names queues in doubt", () => {
  const first_in_doubt = [{ vhost: "shop", queue: "rpc", source: 0, here: 0, doubts: ["one", "two"] }];
  const found = described({ ...VIEW, in_step: false, why_not: ["a link doesn't work"], in_doubt: 12, first_in_doubt });
  assert.equal(found.verdict, "Not in step with origin");
  assert.notEqual(found.state, described(VIEW).state);
  assert.deepEqual([found.why, found.inDoubt], [["a link doesn't work"], "12 queues in doubt"]);
  assert.deepEqual(found.doubts, [["shop/rpc", "one; two"]]);
});

test("after a promotion it says since when, and nothing of before", () => {
  choose("utc");
  const found = described({ ...VIEW, in_step: false, why_not: ["it was promoted"], promoted: "2026-11-27T10:00:00Z" });
  assert.equal(found.verdict, "Promoted at 2026-11-27 10:00:00: it doesn't follow origin any more");
  assert.deepEqual([found.why, found.figures], [[], []]);
  assert.match(found.advice[0], /standby reverse/);
  assert.equal(described({ ...VIEW, promoted: "" }).verdict, "Promoted: it doesn't follow origin any more");
});
