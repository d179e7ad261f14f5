import assert from "node:assert/strict";
import test from "node:test";

import { ceiling, ceilingOfSeconds, runsOf, timesOf } from "#page/charts.js";
import { choose } from "#page/zone.js";

const MINUTE = 60_000;
const MIDNIGHT = Date.parse("2026-11-23T00:00:00Z");

test("an axis ends at a number whose half is whole", () => {
  assert.deepEqual([0, 2, 3, 5, 11, 41, 99, 12_345_678].map(ceiling), [2, 2, 4, 10, 20, 100, 100, 20_000_000]);
  assert.deepEqual([0, 3, 61, 700, 86_401].map(ceilingOfSeconds), [2, 4, 120, 1_200, 172_800]);
});

test("times are round ones of the day, as many as there is room for", () => {
  choose("utc");
  const at = (minutes) => MIDNIGHT + minutes * MINUTE;
  assert.deepEqual(timesOf([at(1), at(16)], 320), [5, 10, 15].map(at));
  assert.equal(timesOf([at(1), at(16)], 1_200).length, 16);
  assert.deepEqual(timesOf([at(-1_440), at(0)], 320), [-1_440, -1_080, -720, -360, 0].map(at));
});

test("a line is broken where nothing is known, and a point alone is a short line", () => {
  const points = [[1, 5], [2, 6], [3, null], [4, 7], [5, null]];
  assert.deepEqual(runsOf(points), [[[1, 5], [2, 6]], [[4, 7], [4, 7]]]);
});
