import assert from "node:assert/strict";
import test from "node:test";

import { pathOf } from "#page/sparkline.js";

test("values end at the right, between the bottom and the top", () => {
  assert.equal(pathOf([0, 5, 10]), "M61.8 19.0L62.9 10.0L64.0 1.0");
});

test("an idle link is a line at the bottom, and a link without a past is nothing", () => {
  assert.equal(pathOf([0, 0]), "M62.9 19.0L64.0 19.0");
  assert.deepEqual([pathOf([]), pathOf([3])], ["", ""]);
});
