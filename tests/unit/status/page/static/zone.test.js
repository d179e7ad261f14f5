import assert from "node:assert/strict";
import test from "node:test";

process.env.TZ = "Asia/Kathmandu";
const { choose, clockMinutes, moment, offset, zoned, zoneName } = await import("#page/zone.js");

const TIME = Date.parse("2026-11-23T04:28:33Z");

test("times are those of the browser's zone, with its name", () => {
  choose("local");
  assert.equal(zoned(TIME), "2026-11-23 10:13:33 UTC+5:45");
  assert.deepEqual([clockMinutes(TIME), offset(TIME)], ["10:13", (5 * 60 + 45) * 60_000]);
});

test("or UTC, where that is chosen", () => {
  choose("utc");
  assert.equal(zoned(TIME), "2026-11-23 04:28:33 UTC");
  assert.deepEqual([moment(TIME), offset(TIME)], ["2026-11-23 04:28:33", 0]);
});

test("a zone is named as it is at that time", (context) => {
  context.after(() => (process.env.TZ = "Asia/Kathmandu"));
  choose("local");
  const named = (zone, time) => {
    process.env.TZ = zone;
    return zoneName(Date.parse(time));
  };
  assert.equal(named("America/St_Johns", "2026-11-23T00:00:00Z"), "UTC-3:30");
  assert.equal(named("Europe/Paris", "2026-01-23T00:00:00Z"), "UTC+1");
  assert.equal(named("Europe/Paris", "2026-07-23T00:00:00Z"), "UTC+2");
});
