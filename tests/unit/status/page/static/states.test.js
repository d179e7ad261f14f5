import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { GROUPS, needsSomebody, shownStatus, STATES, stateOf } from "#page/states.js";

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

test("a link that runs further behind than it may isn't shown as well", () => {
  const since = "2026-11-23T04:28:33Z";
  const shown = [null, since].map((critical_since) => shownStatus({ status: "running", critical_since }));
  assert.deepEqual([...shown, shownStatus({ status: "paused", critical_since: since })], ["running", "behind", "paused"]);
  assert.equal(stateOf("behind").group, "degraded");
});
