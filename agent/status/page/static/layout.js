/** Where nodes and arrows of the topology stand. Numbers only; nothing is drawn here. */

import { GROUPS, stateOf } from "./states.js";

export const MOST_SINGLE = 4; // links between two clusters that have an arrow each; more are bundled by state
const LANE = 26;
const PADDING = 14;
const GAP = 18;
const LEAST_HEIGHT = 56;
const TALLEST_TARGET = 420;
const NARROW = 640;

/** Sources with their arrows, the gravest first. An arrow is one link, or all in one group of states. */
export function sourcesOf(rows) {
  const sources = new Map();
  for (const row of rows) {
    if (!sources.has(row.source)) sources.set(row.source, { name: row.source, isKnown: false, rows: [] });
    const source = sources.get(row.source);
    source.rows.push(row);
    source.isKnown ||= row.cluster !== null;
  }
  return [...sources.values()]
    .map((source) => ({ ...source, gravity: Math.min(...source.rows.map((row) => row.gravity)), arrows: arrowsOf(source.rows) }))
    .sort((one, other) => one.gravity - other.gravity || one.name.localeCompare(other.name, "en", { numeric: true }));
}

function arrowsOf(rows) {
  const groups = Object.keys(GROUPS);
  const groupOf = (row) => stateOf(row.view.status).group;
  if (rows.length <= MOST_SINGLE) {
    return [...rows]
      .sort((one, other) => one.gravity - other.gravity)
      .map((row) => ({ group: groupOf(row), rows: [row] }));
  }
  return groups
    .map((group) => ({ group, rows: rows.filter((row) => groupOf(row) === group) }))
    .filter((arrow) => arrow.rows.length > 0);
}

/** Boxes and curves for a drawing that is `width` wide: sources on the left, this cluster on the right. */
export function place(sources, width) {
  const isNarrow = width < NARROW;
  const boxWidth = Math.round(Math.min(260, width * (isNarrow ? 0.34 : 0.24)));
  let top = 1;
  const boxes = sources.map((source) => {
    const height = Math.max(LEAST_HEIGHT, source.arrows.length * LANE + PADDING);
    const box = { x: 1, y: top, width: boxWidth, height };
    top += height + GAP;
    return box;
  });
  const height = Math.max(top - GAP, 120) + 1;
  const lanes = sources.reduce((sum, source) => sum + source.arrows.length, 0);
  const targetHeight = Math.min(height - 2, Math.max(96, lanes * LANE + PADDING), TALLEST_TARGET);
  const target = { x: width - boxWidth - 1, y: (height - targetHeight) / 2, width: boxWidth, height: targetHeight };
  const curves = curvesOf(sources, boxes, { target, lanes, isNarrow });
  return { height, target, boxes, curves, letters: isNarrow ? 0 : Math.floor((width - 2 * boxWidth) / 22) };
}

function curvesOf(sources, boxes, { target, lanes, isNarrow }) {
  let lane = 0;
  return sources.map((source, index) =>
    source.arrows.map((_, at) => {
      const box = boxes[index];
      const from = { x: box.x + box.width, y: box.y + (box.height * (at + 0.5)) / source.arrows.length };
      const to = { x: target.x - 10, y: target.y + (target.height * (lane + 0.5)) / lanes };
      lane += 1;
      const bend = (to.x - from.x) * 0.5;
      const label = isNarrow ? 0.35 : 0.15;
      return { from, to, bend, label: pointAt(from, to, { bend, at: label }) };
    }),
  );
}

/** A point of the cubic curve whose handles lie level with its ends. */
function pointAt(from, to, { bend, at }) {
  const rest = 1 - at;
  const weights = [rest ** 3, 3 * rest ** 2 * at, 3 * rest * at ** 2, at ** 3];
  const xs = [from.x, from.x + bend, to.x - bend, to.x];
  const ys = [from.y, from.y, to.y, to.y];
  const along = (values) => values.reduce((sum, value, index) => sum + value * weights[index], 0);
  return { x: along(xs), y: along(ys) };
}
