import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { differences, lined, shortened } from "#page/names.js";

const { names, shortened: commands } = JSON.parse(readFileSync(new URL("../as_commands_do.json", import.meta.url)));

test("long names are shortened as the commands do", () => {
  const differs = differences(names);
  for (const [letters, expected] of Object.entries(commands)) {
    assert.deepEqual(names.map((name) => shortened(name, Number(letters), differs.get(name))), expected);
  }
});

test("names are broken behind signs into lines that hold all of them", () => {
  assert.deepEqual(lined("dc2-production-europe", 12, 4), ["dc2-", "production-", "europe"]);
  assert.deepEqual(lined("rabbit@frankfurt", 20, 2), ["rabbit@frankfurt"]);
  assert.deepEqual(lined("x".repeat(25), 10, 3), ["x".repeat(10), "x".repeat(10), "x".repeat(5)]);
  assert.deepEqual(lined(`a-${"x".repeat(18)}`, 10, 2), ["a-xxxxxxxx", "x".repeat(10)]);
});

test("names that are alike stay apart in two lines of a telephone", () => {
  const alike = Array.from({ length: 10 }, (_, at) => `rabbit@a-rather-long-name-of-a-broker-0${at}.frankfurt.example.com`);
  const differs = differences([...alike, "rabbit@frankfurt-production-1"]);
  const lines = alike.map((name) => lined(name, 17, 2, differs.get(name)));
  assert.equal(new Set(lines.map((each) => each.join(""))).size, 10);
  for (const [at, each] of lines.entries()) {
    assert.ok(each.join("").includes(`0${at}`), each);
    assert.ok(each.length <= 2 && each.every((line) => line.length <= 17), each);
  }
  assert.deepEqual(lined("rabbit@frankfurt-production-1", 17, 2), ["rabbit@frankfurt-", "production-1"]);
});
