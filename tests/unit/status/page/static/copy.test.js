import assert from "node:assert/strict";
import test from "node:test";

import { piecesOf } from "#page/copy.js";

test("in advice, code of several words is a command", () => {
  const pieces = piecesOf("Set `max-hops`, or run `rabbitmqctl set_permissions -p / fed`.");
  assert.deepEqual(pieces.filter(({ isCode }) => isCode).map(({ part }) => part), ["max-hops", "rabbitmqctl set_permissions -p / fed"]);
  assert.deepEqual(pieces.filter(({ isCommand }) => isCommand).map(({ part }) => part), ["rabbitmqctl set_permissions -p / fed"]);
  assert.equal(pieces.map(({ part }) => part).join(""), "Set max-hops, or run rabbitmqctl set_permissions -p / fed.");
});
