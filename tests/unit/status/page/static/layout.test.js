import assert from "node:assert/strict";
import test from "node:test";

import { curvesOf, nodesOf, place, sourcesOf, targetTop } from "#page/layout.js";

import { rowsOf } from "./rows.js";

const CHOSEN_NONE = new Map();

/** Clusters with so many links each in these states. */
const clusters = (states, links = 1) =>
  rowsOf(
    ...states.flatMap((status, at) =>
      Array.from({ length: links }, (_, each) => ({
        id: `${at}.${each}`,
        status,
        upstream: `dc${at}`,
        upstream_cluster: `site-${String(at).padStart(2, "0")}`,
      })),
    ),
  );
const times = (number, status) => Array.from({ length: number }, () => status);
const SIXTY = [...times(10, "backoff"), ...times(5, "stalled"), ...times(2, "paused"), ...times(43, "running")];
const namesOf = (nodes) => nodes.map(({ name }) => name);

test("sources come by their worst link, then by name", () => {
  const rows = rowsOf(
    { upstream_cluster: "dc10" },
    { upstream_cluster: "dc9" },
    { upstream_cluster: "dc1", status: "paused" },
    { upstream_cluster: "dc2", status: "paused" },
    { upstream_cluster: "dc2", status: "stalled" },
    { upstream: "dark", upstream_cluster: null, status: "backoff" },
  );
  const sources = sourcesOf(rows);
  assert.deepEqual(
    sources.map(({ name, group, isKnown }) => [name, group, isKnown]),
    [["dark", "down", false], ["dc2", "degraded", true], ["dc9", "up", true], ["dc10", "up", true], ["dc1", "off", true]],
  );
});

test("up to four links have arrows of their own; more are one arrow for each kind of state", () => {
  const [few] = sourcesOf(clusters(["running"], 4));
  assert.deepEqual(few.arrows.map(({ rows }) => rows.length), [1, 1, 1, 1]);
  const rows = rowsOf(...times(5, "running").map((status) => ({ status })), { status: "backoff" }, { status: "invalid" });
  const [many] = sourcesOf(rows);
  assert.deepEqual(many.arrows.map(({ group, rows }) => [group, rows.length]), [["down", 2], ["up", 5]]);
});

test("twelve clusters are all shown, whatever their states; of more, those that are well are one box", () => {
  const nodes = nodesOf(sourcesOf(clusters(times(12, "running"))), CHOSEN_NONE);
  assert.deepEqual([nodes.length, nodes.some(({ isRest }) => isRest)], [12, false]);
  assert.deepEqual(namesOf(nodesOf(sourcesOf(clusters(times(13, "running"))), CHOSEN_NONE)), ["13 clusters"]);
});

test("of sixty clusters those in trouble are shown, and the rest of each state is one box", () => {
  const nodes = nodesOf(sourcesOf(clusters(SIXTY, 2)), CHOSEN_NONE);
  assert.deepEqual(namesOf(nodes.filter(({ isRest }) => isRest)), ["+ 4 clusters", "43 clusters"]);
  assert.equal(nodes.filter(({ isRest }) => !isRest).length, 6 + 5 + 2);
  const rest = nodes.find(({ name }) => name === "43 clusters");
  assert.deepEqual([rest.group, rest.rows.length, rest.arrows.length], ["up", 86, 1]);
  assert.ok(place(nodes, 1_440, 900).height < 1_000);
});

test("each cluster of a state can be shown, and all of them as one", () => {
  const sources = sourcesOf(clusters(SIXTY));
  const open = nodesOf(sources, new Map([["up", true], ["down", true]]));
  assert.deepEqual([open.length, open.some(({ isRest }) => isRest)], [60, false]);
  const closed = nodesOf(sources, new Map([["down", false]]));
  assert.deepEqual(namesOf(closed.filter(({ group }) => group === "down")), ["10 clusters"]);
});

test("boxes lie below each other within the drawing, and this cluster beside them", () => {
  for (const width of [390, 1_440]) {
    const { boxes, target, height } = place(nodesOf(sourcesOf(clusters(SIXTY)), CHOSEN_NONE), width, 900);
    for (const [at, box] of boxes.entries()) {
      assert.ok(box.y > (at === 0 ? 0 : boxes[at - 1].y + boxes[at - 1].height), at);
      assert.ok(box.x + box.width < target.x && box.y + box.height <= height, at);
    }
    assert.ok(target.x + target.width < width);
  }
});

test("this cluster stays in the part of the drawing that one sees", () => {
  const drawing = { height: 2_400, target: { height: 400 } };
  assert.equal(targetTop(drawing, { top: 0, bottom: 900 }), 250);
  assert.equal(targetTop(drawing, { top: -200, bottom: 300 }), 1);
  assert.equal(targetTop(drawing, { top: 1_500, bottom: 2_400 }), 1_750);
  assert.equal(targetTop(drawing, { top: 2_200, bottom: 3_000 }), 1_999);
});

test("each arrow leads from its box to a place of its own at this cluster", () => {
  const nodes = nodesOf(sourcesOf(clusters(["backoff", "running"], 2)), CHOSEN_NONE);
  const placed = place(nodes, 1_440, 900);
  const curves = curvesOf(nodes, placed, 100).flat();
  assert.deepEqual(curves.map(({ from }) => from.x), times(4, placed.boxes[0].x + placed.boxes[0].width));
  const ends = curves.map(({ to }) => to.y);
  assert.deepEqual(ends, [...new Set(ends)].sort((one, other) => one - other));
  assert.ok(ends[0] > 100 && ends.at(-1) < 100 + placed.target.height);
  for (const { from, path } of curves) assert.ok(path.startsWith(`M${from.x} ${from.y}h${placed.level}C`), path);
});
