import assert from "node:assert/strict";
import test from "node:test";

import { EventText } from "#page/feed.js";

test("events may come in any pieces", () => {
  const text =
    'retry: 2000\n\nevent: links\ndata: [{"id":"a"}]\n\n: still here\n\nevent: gone\ndata: {"id":"ü"}\n\nevent: la';
  const events = [
    { type: "links", data: [{ id: "a" }] },
    { type: "gone", data: { id: "ü" } },
  ];
  for (const size of [1, 7, text.length]) {
    const told = new EventText();
    const pieces = text.match(new RegExp(`[^]{1,${size}}`, "g"));
    assert.deepEqual(pieces.flatMap((piece) => [...told.take(piece)]), events);
  }
});
