import assert from "node:assert/strict";
import test from "node:test";

import { ACTIONS, describe, offered, offeredFor, performAll, requestFor, split } from "#page/actions.js";

import { rowsOf } from "./rows.js";

test("only actions that have an effect are offered", () => {
  for (const status of ["running", "stalled", "blocked", "starting", "backoff", "invalid"]) {
    assert.deepEqual(offered(status), ["restart", "pause"], status);
  }
  assert.deepEqual(["paused", "standby", "terminated"].map(offered), [["resume"], ["pause"], ["restart"]]);
  assert.deepEqual(["stopping", "removing"].map(offered), [[], []]);
});

test("what will happen is told before, with the links that are left as they are", () => {
  const rows = rowsOf({ rate: 2.5 }, { status: "backoff" }, { status: "paused", backlog: 3 }, { status: "standby" });
  const found = split("restart", rows);
  assert.deepEqual(found.meant, rows.slice(0, 2));
  assert.deepEqual(describe("restart", rows, found, 0), [
    ACTIONS.restart.effects,
    "2 links: 1 running, 1 backoff.",
    "They forward 2.5/s now.",
    "Left as they are: 1 paused, 1 standby.",
  ]);
  const behind = rowsOf({}, { critical_since: "2026-11-23T04:28:33Z" });
  assert.equal(describe("restart", behind, split("restart", behind), 0)[1], "2 links: 1 running, 1 behind.");
  const paused = describe("pause", rows, split("pause", rows), 0);
  assert.ok(paused.includes("They forward 2.5/s now; these messages wait upstream from then on."), paused);
  assert.ok(describe("resume", rows, split("resume", rows), 0).includes("3 messages wait for them."));
  assert.deepEqual(describe("resume", rows.slice(0, 1), split("resume", rows.slice(0, 1)), 0), [
    "It has no effect on any of them.",
    "Left as they are: 1 running.",
  ]);
});

test("a cause is acknowledged, with a reason and for a time if they are given, or that is taken back", () => {
  const path = "/api/causes/5e6f7a8b/ack";
  const cause = { id: "5e6f7a8b", acknowledged: null };
  assert.equal(offeredFor(cause), "ack");
  assert.deepEqual(requestFor("ack", cause, "", 0), ["POST", path, {}]);
  assert.deepEqual(requestFor("ack", cause, "known", 3_600), ["POST", path, { reason: "known", for: 3_600 }]);
  const known = { ...cause, acknowledged: { by: "ann@ops" } };
  assert.equal(offeredFor(known), "unack");
  assert.deepEqual(requestFor("unack", known, "", 0), ["DELETE", path, null]);
  assert.deepEqual(split("ack", [cause]), { meant: [cause], skipped: new Map() });
});

const THOUSAND = Array.from({ length: 1_000 }, (_, at) => ({ id: at + 1 }));

test("a few are done at a time, each once, with progress", async () => {
  const [done, progress] = [[], []];
  let [running, most] = [0, 0];
  const perform = async (row) => {
    running += 1;
    most = Math.max(most, running);
    await null;
    running -= 1;
    done.push(row.id);
  };
  const errors = await performAll(THOUSAND, perform, (number) => progress.push(number));
  assert.equal(errors.size, 0);
  const all = THOUSAND.map(({ id }) => id);
  assert.deepEqual([...done].sort((one, other) => one - other), all);
  assert.deepEqual(progress, all);
  assert.equal(most, 4);
});

test("what the agent refuses for one link stops no other, and is told by link", async () => {
  const perform = async (row) => {
    if (row.id % 500 === 7) throw Object.assign(new Error("no such link"), { status: 404 });
  };
  const errors = await performAll(THOUSAND, perform, () => {});
  assert.deepEqual([...errors], [[THOUSAND[6], "no such link"], [THOUSAND[506], "no such link"]]);
});

test("without a token or an agent the rest is not tried", async () => {
  const tried = [];
  const perform = async (row) => {
    tried.push(row.id);
    await null;
    if (row.id === 1) throw new Error("the agent needs a token");
  };
  await assert.rejects(performAll(THOUSAND, perform, () => {}), /needs a token/);
  await new Promise((done) => setImmediate(done)); // those that had begun go on for a moment
  assert.ok(tried.length <= 8, tried.length);
});
