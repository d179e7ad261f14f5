import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { GROUPS, needsSomebody, STATES, stateOf } from "#page/states.js";

const { severity } = JSON.parse(readFileSync(new URL("../as_commands_do.json", import.meta.url)));

test("every state has its place in the order, which is that of the commands", () => {
  const places = Object.values(STATES).map((state) => state.severity);
  assert.deepEqual(places, severity.map((_, at) => at));
  assert.deepEqual(Object.keys(STATES), severity);
});

test("every state has a name, a shape of its own and a group", () => {
  const states = Object.values(STATES);
  assert.equal(new Set(states.map(({ label }) => label)).size, states.length);
  assert.equal(new Set(states.map(({ shape }) => shape)).size, states.length);
  assert.deepEqual(new Set(states.map(({ group }) => group)), new Set(Object.keys(GROUPS)));
});

test("a state of another release is shown as unknown", () => {
  assert.deepEqual([stateOf("later").label, stateOf("later").group], ["Unknown", "busy"]);
});

test("what is down or degraded needs somebody", () => {
  assert.deepEqual(Object.keys(STATES).filter(needsSomebody), ["invalid", "backoff", "stalled", "blocked"]);
});
