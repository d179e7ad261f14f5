import assert from "node:assert/strict";
import test from "node:test";

import { NONE } from "#page/format.js";
import { waitingIn } from "#page/summary.js";

test("of what waits there is no number where none is known", () => {
  const of = (backlog, isExact) => waitingIn({ backlog, isExact });
  assert.deepEqual(
    [of(null, true), of(null, false), of(0, false), of(12_345, false), of(0, true), of(7, true)],
    [NONE, NONE, NONE, "at least 12.3K", "0", "7"],
  );
});
