import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { commandFor, moveFor, withQuarantined } from "#page/quarantine.js";

import { rowsOf } from "./rows.js";

const { moves } = JSON.parse(readFileSync(new URL("../as_commands_do.json", import.meta.url)));

test("links with quarantined messages come by their number", () => {
  const rows = rowsOf({ quarantined: 3 }, {}, { quarantined: 9 });
  assert.deepEqual(withQuarantined(rows).map(({ id }) => id), ["2", "0"]);
});

test("the command lists those of one link", () => {
  assert.equal(commandFor("0000000a"), "federation-agent quarantine list -c FILE --link 0000000a");
});

test("the command that takes them elsewhere is that of `describe`", () => {
  for (const [vhost, upstream, source] of moves) {
    assert.equal(
      moveFor({ id: "0000000a", view: { vhost, upstream } }),
      `federation-agent move -c FILE --from ${source} --queue 'federation-agent: quarantine' ` +
        "--match x-quarantine-link=0000000a --to-queue QUEUE",
    );
  }
});
