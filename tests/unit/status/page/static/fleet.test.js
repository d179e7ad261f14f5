import assert from "node:assert/strict";
import test from "node:test";

import { pairsOf } from "#page/fleet.js";

const edge = (upstream, links, others = {}) => ({
  upstream,
  links,
  rate: 1,
  waiting: 2,
  is_exact: true,
  oldest_unconfirmed_seconds: 0,
  ...others,
});
const agent = (cluster, edges, error = null) => ({ url: null, error, summary: { agent: `${cluster}-a`, cluster, edges } });
const waysOf = ({ ways }) => ways.map(({ from, to, links, isUnknown = false }) => ({ from, to, links, isUnknown }));

test("two clusters are one pair with the links each way", () => {
  const [pair] = pairsOf([agent("dc2", [edge("dc1", { running: 2 })]), agent("dc1", [edge("dc2", { running: 1 })])]);
  assert.deepEqual([pair.one, pair.other], ["dc1", "dc2"]);
  assert.deepEqual(waysOf(pair), [
    { from: "dc1", to: "dc2", links: { running: 2 }, isUnknown: false },
    { from: "dc2", to: "dc1", links: { running: 1 }, isUnknown: false },
  ]);
});

test("of a cluster without an agent among the peers one way is not known; of others there are no links", () => {
  const [unknown] = pairsOf([agent("dc2", [edge("dc9", { running: 1 })])]);
  assert.deepEqual(waysOf(unknown)[0], { from: "dc2", to: "dc9", links: {}, isUnknown: true });
  const [none] = pairsOf([agent("dc2", [edge("dc1", { running: 1 })]), agent("dc1", [])]);
  assert.deepEqual(waysOf(none)[1], { from: "dc2", to: "dc1", links: {}, isUnknown: false });
});

test("a shovel is shown between its two clusters, and one within a cluster once", () => {
  const shovels = [edge("dc1", { running: 1 }, { destination: "dc3" }), edge("dc2", { running: 1 }, { destination: "dc2" })];
  const pairs = pairsOf([agent("dc2", [...shovels, edge("dc1", { running: 2 })])]);
  const given = pairs.flatMap(waysOf).filter(({ links }) => links.running);
  assert.deepEqual(given.map(({ from, to, links }) => [from, to, links.running]), [["dc1", "dc2", 2], ["dc1", "dc3", 1], ["dc2", "dc2", 1]]);
});

test("agents of one cluster are added up, and the worst pair comes first", () => {
  const one = agent("dc2", [edge("dc1", { running: 2 }), edge("dc3", { backoff: 1 }, { is_exact: false })]);
  const other = agent("dc2", [edge("dc1", { running: 1, paused: 1 }, { oldest_unconfirmed_seconds: 9 })], "can't be reached");
  const [worst, pair] = pairsOf([one, other, { url: "http://x", error: "can't be reached", summary: null }]);
  assert.deepEqual([worst.one, worst.other], ["dc2", "dc3"]);
  const { links, rate, waiting, isExact, oldest, isStale } = pair.ways[0];
  assert.deepEqual({ links, rate, waiting, isExact, oldest, isStale }, {
    links: { running: 3, paused: 1 }, rate: 2, waiting: 4, isExact: true, oldest: 9, isStale: true,
  });
  assert.equal(worst.ways[1].isExact, false);
});
