/** The positions of nodes and arrows of the topology. Numbers only; nothing is drawn here. */

import { GROUPS, stateOf } from "./states.js";

export const MOST_SINGLE = 4; // links between two clusters with their own arrows; more are bundled by state
const FEW = 12; // clusters that are all shown, with arrows of their own for a few links
const MOST = 6; // clusters of one state among many; the others are one box
const QUIET = ["busy", "up", "off"]; // among many, clusters in these states are one box
const RANK = ["down", "degraded", "busy", "up", "off"];
const ROOMY = { least: 56, gap: 18, padding: 14 };
const DENSE = { least: 44, gap: 8, padding: 8 };
const THREE_LINES = 62; // a name takes two where there is little room
const LANE = 26;
const TALLEST_TARGET = 420;
const NARROW = 640;
const MARGIN = 16; // between this cluster and the edge of the window
const collator = new Intl.Collator("en", { numeric: true });

/** Sources with their arrows, the most severe first. An arrow is one link, or all in one group of states. */
export function sourcesOf(rows) {
  const sources = new Map();
  for (const row of rows) {
    if (!sources.has(row.source)) sources.set(row.source, { name: row.source, isKnown: false, rows: [] });
    const source = sources.get(row.source);
    source.rows.push(row);
    source.isKnown ||= row.cluster !== null;
  }
  const most = sources.size > FEW ? 1 : MOST_SINGLE;
  return [...sources.values()]
    .map((source) => ({
      ...source,
      group: groupOf(source.rows),
      severity: mostSevere(source.rows),
      arrows: arrowsOf(source.rows, most),
    }))
    .sort(
      (one, other) =>
        RANK.indexOf(one.group) - RANK.indexOf(other.group) ||
        one.severity - other.severity ||
        collator.compare(one.name, other.name),
    );
}

/** That of its worst links; links that are off on purpose count if all are. */
const groupOf = (rows) => {
  const found = new Set(rows.map((row) => stateOf(row.view.status).group));
  return RANK.find((group) => found.has(group));
};

const mostSevere = (rows) => rows.reduce((least, row) => Math.min(least, row.severity), Infinity);

/**
 * What is drawn: all sources if they are few, else those in trouble, and one box for the rest of each state. `chosen`
 * has the groups that the user opened (true) or closed (false).
 */
export function nodesOf(sources, chosen) {
  const groups = RANK.filter((group) => sources.some((source) => source.group === group));
  return groups.flatMap((group) => {
    const members = sources.filter((source) => source.group === group);
    const most = limitOf(group, { number: members.length, total: sources.length, choice: chosen.get(group) });
    if (members.length - most < 2 && most > 0) return members;
    return [...members.slice(0, most), restOf(group, members.slice(most), most > 0)];
  });
}

function limitOf(group, { number, total, choice }) {
  if (choice !== undefined) return choice ? number : 0;
  if (total <= FEW) return number;
  return QUIET.includes(group) && number > 3 ? 0 : MOST;
}

function restOf(group, sources, isMore) {
  const rows = sources.flatMap((source) => source.rows);
  const name = `${isMore ? "+ " : ""}${sources.length} ${sources.length === 1 ? "cluster" : "clusters"}`;
  return { name, isRest: true, isKnown: true, group, rows, sources, arrows: arrowsOf(rows, 0) };
}

function arrowsOf(rows, most) {
  const groups = Object.keys(GROUPS);
  const groupOfRow = (row) => stateOf(row.view.status).group;
  if (rows.length <= most) {
    return [...rows]
      .sort((one, other) => one.severity - other.severity)
      .map((row) => ({ group: groupOfRow(row), rows: [row] }));
  }
  return groups
    .map((group) => ({ group, rows: rows.filter((row) => groupOfRow(row) === group) }))
    .filter((arrow) => arrow.rows.length > 0);
}

/** Boxes for a drawing that is `width` wide: sources on the left, this cluster on the right. */
export function place(nodes, width, tallest) {
  const isNarrow = width < NARROW;
  const { least, gap, padding } = nodes.length > FEW ? DENSE : ROOMY;
  const boxWidth = Math.round(Math.min(260, width * (isNarrow ? 0.38 : 0.24)));
  const targetWidth = isNarrow ? Math.round(width * 0.25) : boxWidth;
  const level = (width - boxWidth - targetWidth) * (isNarrow ? 0.65 : 0.4);
  let top = 1;
  const boxes = nodes.map((node) => {
    const height = Math.max(isNarrow ? THREE_LINES : least, node.arrows.length * LANE + padding);
    const box = { x: 1, y: top, width: boxWidth, height };
    top += height + gap;
    return box;
  });
  const height = Math.max(top - gap, 120) + 1;
  const lanes = nodes.reduce((sum, node) => sum + node.arrows.length, 0);
  const wanted = Math.max(96, lanes * LANE + padding);
  const targetHeight = Math.min(height - 2, wanted, TALLEST_TARGET, Math.max(96, tallest - 2 * MARGIN));
  const target = { x: width - targetWidth - 2, width: targetWidth, height: targetHeight };
  return { height, target, boxes, isNarrow, level, lanes };
}

/** Where this cluster is: in the middle of the part of the drawing that one sees. */
export function targetTop({ height, target }, { top, bottom }) {
  const middle = (Math.max(0, top) + Math.min(height, bottom)) / 2;
  return Math.min(height - 1 - target.height, Math.max(1, middle - target.height / 2));
}

/** A curve begins level, so that no other crosses its label; handles that lie level let it bend gently. */
export function curvesOf(nodes, { boxes, target, lanes, level }, top) {
  let lane = 0;
  return nodes.map((node, index) =>
    node.arrows.map((_, at) => {
      const box = boxes[index];
      const from = { x: box.x + box.width, y: box.y + (box.height * (at + 0.5)) / node.arrows.length };
      const to = { x: target.x - 10, y: top + (target.height * (lane + 0.5)) / lanes };
      lane += 1;
      const bend = (to.x - from.x - level) / 2;
      const middle = from.x + level + bend;
      return { from, to, path: `M${from.x} ${from.y}h${level}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}` };
    }),
  );
}
