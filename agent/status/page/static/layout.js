/** The positions of nodes and arrows of the topology. Numbers only; nothing is drawn here. */

import { GROUPS, stateOf } from "./states.js";

export const MOST_SINGLE = 4; // links between two clusters with their own arrows; more are bundled by state
const FEW = 12; // clusters that are all shown, with arrows of their own for a few links
const MOST = 6; // clusters of one state among many; the others are one box
const QUIET = ["busy", "up", "off"]; // among many, clusters in these states are one box
export const OWN = -1; // the place of this cluster
const RANK = ["down", "degraded", "busy", "up", "off"];
const ROOMY = { least: 56, gap: 18, padding: 14 };
const DENSE = { least: 44, gap: 8, padding: 8 };
const THREE_LINES = 62; // a name takes two where there is little room
const LANE = 26;
const TALLEST_TARGET = 420;
const NARROW = 640;
const HEAD = 10;
const TURN = 0.3; // of the level part: how far an arrow goes beyond it to turn around
const MARGIN = 16; // between this cluster and the edge of the window
const collator = new Intl.Collator("en", { numeric: true });

/**
 * All clusters but `own`, the most severe first. A link counts for the cluster that it comes from; where none comes from, those
 * count that lead there.
 */
export function clustersOf(rows, own) {
  const found = new Map();
  for (const row of rows) {
    const isUp = stateOf(row.view.status).group === "up";
    const ends = [
      [row.source, "sent", row.view.upstream_cluster],
      [row.destination || own, "received", row.view.destination_cluster],
    ];
    for (const [name, way, cluster] of ends) {
      if (name === own) continue;
      if (!found.has(name)) found.set(name, { name, isKnown: false, sent: [], received: [] });
      found.get(name)[way].push(row);
      found.get(name).isKnown ||= isUp || Boolean(cluster);
    }
  }
  return [...found.values()]
    .map(({ name, isKnown, sent, received }) => {
      const counted = sent.length > 0 ? sent : received;
      return { name, isKnown, isSource: sent.length > 0, rows: counted, group: groupOf(counted), severity: mostSevere(counted) };
    })
    .sort(
      (one, other) =>
        RANK.indexOf(one.group) - RANK.indexOf(other.group) ||
        one.severity - other.severity ||
        Number(other.isSource) - Number(one.isSource) ||
        collator.compare(one.name, other.name),
    );
}

/** That of its worst links; links that are off on purpose count if all are. */
const groupOf = (rows) => {
  const found = new Set(rows.map((row) => stateOf(row.shown).group));
  return RANK.find((group) => found.has(group));
};

const mostSevere = (rows) => rows.reduce((least, row) => Math.min(least, stateOf(row.shown).severity), Infinity);

/**
 * What is drawn: all clusters if they are few, else those in trouble, and one box for the rest of each state. `chosen`
 * has the groups that the user opened (true) or closed (false).
 */
export function nodesOf(clusters, chosen) {
  const groups = RANK.filter((group) => clusters.some((cluster) => cluster.group === group));
  return groups.flatMap((group) => {
    const members = clusters.filter((cluster) => cluster.group === group);
    const most = limitOf(group, { number: members.length, total: clusters.length, choice: chosen.get(group) });
    if (members.length - most < 2 && most > 0) return members;
    return [...members.slice(0, most), restOf(group, members.slice(most), most > 0)];
  });
}

function limitOf(group, { number, total, choice }) {
  if (choice !== undefined) return choice ? number : 0;
  if (total <= FEW) return number;
  return QUIET.includes(group) && number > 3 ? 0 : MOST;
}

function restOf(group, clusters, isMore) {
  const name = `${isMore ? "+ " : ""}${clusters.length} ${clusters.length === 1 ? "cluster" : "clusters"}`;
  return { name, isRest: true, isKnown: true, group, rows: clusters.flatMap((cluster) => cluster.rows), clusters };
}

/** `from` and `to` are places among the nodes. Between two clusters an arrow is one link, or all in one group of states. */
export function arrowsOf(rows, nodes, own) {
  const members = nodes.flatMap((node, at) => (node.clusters ?? [node]).map(({ name }) => [name, at]));
  const places = new Map(members);
  const most = members.length > FEW ? 1 : MOST_SINGLE;
  const between = new Map();
  for (const row of rows) {
    const [from, to] = [row.source, row.destination || own].map((name) => places.get(name) ?? OWN);
    const key = `${from} ${to}`;
    if (!between.has(key)) between.set(key, { from, to, rows: [] });
    between.get(key).rows.push(row);
  }
  return [...between.values()]
    .sort((one, other) => orderOf(one.from) - orderOf(other.from) || orderOf(one.to) - orderOf(other.to))
    .flatMap(({ from, to, rows: those }) => {
      const [source, destination] = [from, to].map((at) => nodes[at] ?? { name: own, isOwn: true });
      const bundles = bundlesOf(those, source.isRest || destination.isRest ? 0 : most);
      return bundles.map((bundle) => ({ from, to, source, destination, ...bundle }));
    });
}

const orderOf = (place) => (place === OWN ? Infinity : place);

function bundlesOf(rows, most) {
  const groupOfRow = (row) => stateOf(row.shown).group;
  if (rows.length <= most) {
    return [...rows]
      .sort((one, other) => stateOf(one.shown).severity - stateOf(other.shown).severity)
      .map((row) => ({ group: groupOfRow(row), rows: [row] }));
  }
  return Object.keys(GROUPS)
    .map((group) => ({ group, rows: rows.filter((row) => groupOfRow(row) === group) }))
    .filter((bundle) => bundle.rows.length > 0);
}

/** The ends of arrows at each box from top to bottom: what comes from above or leads there is above. */
function endsOf(arrows) {
  const ends = new Map([[OWN, []]]);
  arrows.forEach(({ from, to }, arrow) => {
    for (const [end, place, other] of [["from", from, to], ["to", to, from]]) {
      if (!ends.has(place)) ends.set(place, []);
      ends.get(place).push({ arrow, end, height: other === OWN ? place : other });
    }
  });
  for (const each of ends.values()) each.sort((one, other) => orderOf(one.height) - orderOf(other.height));
  return ends;
}

/** Boxes for a drawing that is `width` wide: other clusters on the left, this one on the right. */
export function place(nodes, arrows, { width, tallest }) {
  const isNarrow = width < NARROW;
  const { least, gap, padding } = nodes.length > FEW ? DENSE : ROOMY;
  const boxWidth = Math.round(Math.min(260, width * (isNarrow ? 0.38 : 0.24)));
  const targetWidth = isNarrow ? Math.round(width * 0.25) : boxWidth;
  const between = width - boxWidth - targetWidth;
  const level = between * (isNarrow ? 0.65 : 0.4);
  const ends = endsOf(arrows);
  let top = 1;
  const boxes = nodes.map((_, at) => {
    const height = Math.max(isNarrow ? THREE_LINES : least, ends.get(at).length * LANE + padding);
    const box = { x: 1, y: top, width: boxWidth, height };
    top += height + gap;
    return box;
  });
  const height = Math.max(top - gap, 120) + 1;
  const wanted = Math.max(96, ends.get(OWN).length * LANE + padding);
  const targetHeight = Math.min(height - 2, wanted, TALLEST_TARGET, Math.max(96, tallest - 2 * MARGIN));
  const target = { x: width - targetWidth - 2, width: targetWidth, height: targetHeight };
  return { height, target, boxes, isNarrow, level, targetLevel: Math.min(level, between * 0.4), ends };
}

/** Where this cluster is: in the middle of the part of the drawing that one sees. */
export function targetTop({ height, target }, { top, bottom }) {
  const middle = (Math.max(0, top) + Math.min(height, bottom)) / 2;
  return Math.min(height - 1 - target.height, Math.max(1, middle - target.height / 2));
}

/**
 * A curve begins level, so that no other crosses its label; handles that lie level let it bend gently. Arrows are at the side of
 * a box that faces the other column (`way`), so one between two boxes of a column turns around.
 */
export function curvesOf(arrows, { boxes, target, level, targetLevel, ends }, top) {
  const points = arrows.map(() => ({}));
  for (const [place, those] of ends) {
    const way = place === OWN ? -1 : 1;
    const box = place === OWN ? { ...target, y: top } : boxes[place];
    const side = place === OWN ? box.x : box.x + box.width;
    those.forEach(({ arrow, end }, lane) => {
      const y = box.y + (box.height * (lane + 0.5)) / those.length;
      points[arrow][end] = { x: end === "to" ? side + way * HEAD : side, y, way };
    });
  }
  return points.map(({ from, to }) => {
    const isTurning = from.way === to.way;
    const straight = from.way * (from.way > 0 ? level : targetLevel);
    const begin = from.x + straight;
    const end = isTurning ? begin : to.x;
    const middle = isTurning ? begin + straight * TURN : (begin + end) / 2;
    const last = isTurning ? `H${to.x}` : "";
    return { from, to, path: `M${from.x} ${from.y}H${begin}C${middle} ${from.y} ${middle} ${to.y} ${end} ${to.y}${last}` };
  });
}
