import assert from "node:assert/strict";
import test from "node:test";

import { described } from "#page/move.js";

const VIEW = {
  source: "old",
  queues: 12,
  running: 12,
  elsewhere: 0,
  not_working: 0,
  waiting: 1204,
  waiting_is_exact: true,
  forwarded: 1,
};

test("links that run, what waits and what has arrived", () => {
  const found = described(VIEW);
  assert.equal(found.links, "12 queues: 12 links run here");
  assert.equal(found.messages, "1,204 messages wait at the source; 1 message has arrived since this agent started");
});

test("links that don't work, and those of other agents, are counted apart", () => {
  const { links } = described({ ...VIEW, running: 1, elsewhere: 10, not_working: 1 });
  assert.equal(links, "12 queues: 1 link runs here, 10 in another agent, 1 doesn't work or is behind");
});

test("a number that is none is not shown as one", () => {
  assert.match(described({ ...VIEW, waiting_is_exact: false }).messages, /^At least 1,204 messages wait/);
  assert.match(described({ ...VIEW, waiting: null, waiting_is_exact: false }).messages, /^How many messages wait isn't known;/);
});
