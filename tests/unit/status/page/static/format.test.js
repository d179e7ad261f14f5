import assert from "node:assert/strict";
import test from "node:test";

import { age, bytes, count, duration, NONE, plural, rate, waiting } from "#page/format.js";

test("durations have the two largest units at most", () => {
  const told = [
    [-3, "0 s"], [0, "0 s"], [59.9, "59 s"], [60, "1 min"], [61, "1 min 1 s"], [599, "9 min 59 s"], [600, "10 min"],
    [3_599, "59 min"], [3_600, "1 h"], [90_000, "1 d 1 h"],
  ];
  for (const [seconds, words] of told) assert.equal(duration(seconds), words);
});

test("numbers are exact where they are small", () => {
  assert.deepEqual([null, 0, 9_999, 12_345, 1_530_000].map(count), [NONE, "0", "9,999", "12.3K", "1.53M"]);
  assert.deepEqual([null, 0, 0.25, 9.96, 1_234.4].map(rate), [NONE, "0/s", "0.3/s", "10.0/s", "1,234/s"]);
  assert.deepEqual([null, 0, 1_023, 1_536, 5 * 2 ** 30].map(bytes), [NONE, "0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
  assert.deepEqual([plural(1, "link"), plural(1_000, "link"), plural(2, "penny", "pence")], ["1 link", "1,000 links", "2 pence"]);
});

test("of what waits it says whether it is old, may be more, or is not known", () => {
  const of = (backlog, last, isExact) => waiting({ backlog, backlog_last: last, backlog_is_exact: isExact });
  assert.deepEqual([of(null, null, false), of(null, 849, false), of(7, 7, false), of(7, 7, true)], [NONE, "~849", "7+", "7"]);
});

test("an age below a second is told as such, and none as nothing", () => {
  assert.deepEqual([null, 0, 0.4, 61].map(age), [NONE, NONE, "< 1 s", "1 min 1 s"]);
});
