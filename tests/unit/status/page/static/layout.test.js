import assert from "node:assert/strict";
import test from "node:test";

import { arrowsOf, clustersOf, curvesOf, nodesOf, OWN, place, targetTop } from "#page/layout.js";

import { rowsOf, shovelOf } from "./rows.js";

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
const sourcesOf = (rows) => clustersOf(rows, "dc2");

/** All that is drawn of these links: boxes, arrows, and where they are. */
function drawn(rows, { width = 1_440, chosen = CHOSEN_NONE } = {}) {
  const nodes = nodesOf(sourcesOf(rows), chosen);
  const arrows = arrowsOf(rows, nodes, "dc2");
  return { nodes, arrows, placed: place(nodes, arrows, { width, tallest: 900 }) };
}
const waysOf = ({ arrows }) => arrows.map(({ source, destination, rows }) => [source.name, destination.name, rows.length]);

test("sources come by their worst link, then by name", () => {
  const rows = rowsOf(
    { upstream_cluster: "dc10" },
    { upstream_cluster: "dc9" },
    { upstream_cluster: "dc1", status: "paused" },
    { upstream_cluster: "dc3", status: "paused" },
    { upstream_cluster: "dc3", status: "stalled" },
    { uri: "amqp://dark", upstream_cluster: null, status: "backoff" },
  );
  const sources = sourcesOf(rows);
  assert.deepEqual(
    sources.map(({ name, group, isKnown }) => [name, group, isKnown]),
    [["dark:5672", "down", false], ["dc3", "degraded", true], ["dc9", "up", true], ["dc10", "up", true], ["dc1", "off", true]],
  );
});

test("up to four links have arrows of their own; more are one arrow for each kind of state", () => {
  const few = drawn(clusters(["running"], 4));
  assert.deepEqual(few.arrows.map(({ rows }) => rows.length), [1, 1, 1, 1]);
  const rows = rowsOf(...times(5, "running").map((status) => ({ status })), { status: "backoff" }, { status: "invalid" });
  assert.deepEqual(drawn(rows).arrows.map(({ group, rows }) => [group, rows.length]), [["down", 2], ["up", 5]]);
});

test("a link that is behind is drawn as degraded, and its cluster comes before those that are well", () => {
  const behind = { upstream_cluster: "dc9", critical_since: "2026-11-23T04:28:33Z" };
  const { nodes, arrows } = drawn(rowsOf({}, { upstream_cluster: "dc9" }, behind));
  assert.deepEqual(nodes.map(({ name, group, isKnown }) => [name, group, isKnown]), [["dc9", "degraded", true], ["dc1", "up", true]]);
  assert.deepEqual(arrows.map(({ group }) => group), ["degraded", "up", "up"]);
  const many = drawn(rowsOf(behind, ...times(5, "running").map(() => ({ upstream_cluster: "dc9" }))));
  assert.deepEqual(many.arrows.map(({ group, rows }) => [group, rows.length]), [["degraded", 1], ["up", 5]]);
});

test("twelve clusters are all shown, whatever their states; of more, those that are well are one box", () => {
  const nodes = nodesOf(sourcesOf(clusters(times(12, "running"))), CHOSEN_NONE);
  assert.deepEqual([nodes.length, nodes.some(({ isRest }) => isRest)], [12, false]);
  assert.deepEqual(namesOf(nodesOf(sourcesOf(clusters(times(13, "running"))), CHOSEN_NONE)), ["13 clusters"]);
});

test("of sixty clusters those in trouble are shown, and the rest of each state is one box", () => {
  const { nodes, arrows, placed } = drawn(clusters(SIXTY, 2));
  assert.deepEqual(namesOf(nodes.filter(({ isRest }) => isRest)), ["+ 4 clusters", "43 clusters"]);
  assert.equal(nodes.filter(({ isRest }) => !isRest).length, 6 + 5 + 2);
  const rest = nodes.find(({ name }) => name === "43 clusters");
  assert.deepEqual([rest.group, rest.rows.length, arrows.filter(({ source }) => source === rest).length], ["up", 86, 1]);
  assert.ok(placed.height < 1_000);
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
    const { boxes, target, height } = drawn(clusters(SIXTY), { width }).placed;
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
  const { arrows, placed } = drawn(clusters(["backoff", "running"], 2));
  const curves = curvesOf(arrows, placed, 100);
  assert.deepEqual(curves.map(({ from }) => from.x), times(4, placed.boxes[0].x + placed.boxes[0].width));
  const ends = curves.map(({ to }) => to.y);
  assert.deepEqual(ends, [...new Set(ends)].sort((one, other) => one - other));
  assert.ok(ends[0] > 100 && ends.at(-1) < 100 + placed.target.height);
  for (const { from, path } of curves) assert.ok(path.startsWith(`M${from.x} ${from.y}H${from.x + placed.level}C`), path);
});

test("a shovel is an arrow between its two clusters, whichever these are", () => {
  const seen = drawn(
    rowsOf(
      {},
      shovelOf({ name: "between", destination_cluster: "dc3" }),
      shovelOf({ name: "back", upstream_cluster: "dc2", destination_cluster: "dc1" }),
      shovelOf({ name: "within", upstream_cluster: "dc2" }),
    ),
  );
  assert.deepEqual(namesOf(seen.nodes), ["dc1", "dc3"]);
  assert.deepEqual(seen.nodes.map(({ isSource, rows }) => [isSource, rows.length]), [[true, 2], [false, 1]]);
  assert.deepEqual(waysOf(seen), [["dc1", "dc3", 1], ["dc1", "dc2", 1], ["dc2", "dc1", 1], ["dc2", "dc2", 1]]);
  const [dc1, dc3] = seen.placed.boxes;
  const [between, federated, back, within] = curvesOf(seen.arrows, seen.placed, 50);
  const isBeside = (box, { x, y }) => x >= box.x + box.width && y > box.y && y < box.y + box.height;
  assert.ok(isBeside(dc1, between.from) && isBeside(dc3, between.to), "it turns around to the other box");
  assert.ok(isBeside(dc1, federated.from) && isBeside(dc1, back.to));
  assert.ok([federated.to, back.from, within.from, within.to].every(({ x }) => x <= seen.placed.target.x));
  assert.equal(new Set([between.from, federated.from, back.to].map(({ y }) => y)).size, 3, "each end has a place of its own");
  assert.equal(seen.arrows[2].from, OWN);
});

test("one box for a cluster, however many addresses it has, and of one that runs it isn't said that it was not reached", () => {
  const uris = ["amqp://a.dc1", "amqp://b.dc1:5672", "amqps://c.dc1"].map((uri) => ({ uri }));
  const known = rowsOf(...uris, ...uris.map((uri) => shovelOf({ ...uri, destination_cluster: "dc3" })));
  assert.deepEqual(sourcesOf(known).map(({ name, isKnown }) => [name, isKnown]), [["dc1", true], ["dc3", true]]);
  const unknown = { upstream_cluster: null, destination_cluster: null, destination_uri: "amqp://h/v" };
  const unnamed = sourcesOf(rowsOf(shovelOf({ ...unknown, uri: "amqp://h:5672/%2f", status: "backoff" }), shovelOf({ ...unknown, uri: "amqps://s" })));
  assert.deepEqual(unnamed.map(({ name, isKnown, rows }) => [name, isKnown, rows.length]), [["h:5672", true, 1], ["s:5671", true, 1]]);
});

test("clusters that are drawn as one box have one arrow for each way and state", () => {
  const many = Array.from({ length: 20 }, (_, at) => shovelOf({ upstream_cluster: `from-${at}`, destination_cluster: `to-${at}` }));
  const { nodes, arrows } = drawn(rowsOf(...many));
  assert.deepEqual([namesOf(nodes), arrows.map(({ rows }) => rows.length)], [["40 clusters"], [20]]);
});
