import assert from "node:assert/strict";
import test from "node:test";

import { commandFor, withQuarantined } from "#page/quarantine.js";

import { rowsOf } from "./rows.js";

test("links with quarantined messages come by their number", () => {
  const rows = rowsOf({ quarantined: 3 }, {}, { quarantined: 9 });
  assert.deepEqual(withQuarantined(rows).map(({ id }) => id), ["2", "0"]);
});

test("the command lists those of one link", () => {
  assert.equal(commandFor("0000000a"), "federation-agent quarantine list -c FILE --link 0000000a");
});
