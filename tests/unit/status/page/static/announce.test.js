import assert from "node:assert/strict";
import test from "node:test";

import { newsOf } from "#page/announce.js";

import { rowsOf } from "./rows.js";

test("changes are told together, the worst first, with a few names", () => {
  const rows = rowsOf(...["backoff", "invalid", "backoff", "backoff", "stalled", "running"].map((status) => ({ status })));
  const moved = rows.map((row) => ({ row, before: row.view.status === "running" ? "down" : "up" }));
  assert.equal(newsOf(moved), "4 links down: x0, x1, x2 and others. 1 link degraded: x4. 1 link running: x5.");
});

test("a link that fell behind is degraded", () => {
  const [row] = rowsOf({ critical_since: "2026-11-23T04:28:33Z" });
  assert.equal(newsOf([{ row, before: "up" }]), "1 link degraded: x0.");
});

test("a link that recovered before its failure was told is not told", () => {
  const [running, paused] = rowsOf({}, { status: "paused" });
  assert.equal(newsOf([{ row: running, before: "up" }, { row: paused, before: "up" }]), "");
});
