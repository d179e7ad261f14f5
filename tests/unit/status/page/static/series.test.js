import assert from "node:assert/strict";
import test from "node:test";

import { Series } from "#page/series.js";

function rates(totals, at) {
  const series = new Series();
  for (const [seconds, total] of totals) series.put(total, seconds * 1_000);
  return series.rates(at * 1_000);
}

test("a sparkline has the rates of the last seconds", () => {
  assert.deepEqual(rates([[0, 5]], 1), []);
  assert.deepEqual(rates([[0, 0], [3, 100], [5, 200], [7, 300]], 8.5), [50, 50, 50]);
  assert.equal(rates([[0, 0], [3, 600]], 30).at(-1), 0);
});

test("a total that shrinks counts from there", () => {
  assert.deepEqual(rates([[0, 1_000], [3, 5], [5, 25]], 8.5), [10, 0]);
});

test("an hour without a word is an hour without messages", () => {
  const slots = rates([[0, 0], [3, 100]], 3_600);
  assert.deepEqual([[...new Set(slots)], slots.length], [[0], 59]);
});
