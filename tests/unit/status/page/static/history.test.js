import assert from "node:assert/strict";
import test from "node:test";

import { History } from "#page/history.js";

const sample = (seconds, forwarded, others = {}) => ({
  at: new Date(seconds * 1_000).toISOString(),
  forwarded,
  backlog: null,
  oldest_unconfirmed_seconds: 0,
  ...others,
});
const historyOf = (samples, others = {}) => {
  const history = new History();
  history.take({ transitions: [], samples, ...others });
  return history;
};
const inSeconds = (points) => points.map(([time, value]) => [time / 1_000, value]);

test("a stop is drawn as a stop", () => {
  const history = historyOf([sample(0, 0), sample(15, 150), sample(300, 150), sample(315, 300), sample(330, 300)]);
  assert.deepEqual(inSeconds(history.rates()), [[15, 10], [30, 0], [285, 0], [300, 0], [315, 10], [330, 0]]);
});

test("a total that shrank leaves a gap", () => {
  assert.deepEqual(inSeconds(historyOf([sample(0, 90), sample(15, 30), sample(30, 45)]).rates()), [[15, null], [30, 1]]);
});

test("of a long range a point lasts longer, and keeps the most that waited", () => {
  const samples = [sample(0, 0, { backlog: 10 }), sample(20, 20, { backlog: 5_000 }), sample(40, 40, { backlog: 10 })];
  const next = [sample(60, 60, { oldest_unconfirmed_seconds: 3 }), sample(100, 100, { oldest_unconfirmed_seconds: 1 })];
  const history = historyOf([...samples, ...next], { range: "1h", step_seconds: 60 });
  assert.deepEqual(inSeconds(history.lags()), [[40, 5_000], [100, null]]);
  assert.deepEqual(inSeconds(history.ages()), [[40, 0], [100, 3]]);
  assert.deepEqual(inSeconds(history.rates()), [[100, 1]]);
  assert.deepEqual(history.span(3_600_000), [0, 3_600_000]);
});

test("what is received here after the agent's record stays, and what is too old goes", () => {
  const history = historyOf([sample(0, 0), sample(15, 15)]);
  history.put(sample(0, 30), 20_000);
  history.take({ transitions: [], samples: [sample(0, 0), sample(15, 15)] });
  assert.deepEqual(inSeconds(history.lags()).map(([time]) => time), [0, 15, 20]);
  history.put(sample(0, 30), 15 * 60_000 + 10_000);
  assert.deepEqual(inSeconds(history.lags()).map(([time]) => time), [15, 20, 910]);
});
