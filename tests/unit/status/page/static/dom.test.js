import assert from "node:assert/strict";
import test from "node:test";

import { partsOf, visible } from "#page/dom.js";

test("letters that hide or turn others are shown by their numbers", () => {
  assert.equal(visible("\u202eevil\u200b\u0007"), "\\u{202e}evil\\u{200b}\\u{7}");
  assert.equal(visible("日本語 <b>'\"--"), "日本語 <b>'\"--");
});

test("an address may be broken after its parts, never within its port", () => {
  const address = "amqp://rabbit-upstream.messaging.eu-central.example:5672/%2f";
  const parts = partsOf(address);
  assert.equal(parts.join(""), address);
  assert.ok(parts.includes(":5672/"), parts);
  assert.ok(parts.length > 5, parts);
});
