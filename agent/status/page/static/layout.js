/** The positions of nodes and arrows of the topology. Numbers only; nothing is drawn here. */

import { GROUPS, stateOf } from "./states.js";

export const MOST_SINGLE = 4; // links between two clusters with their own arrows; more are bundled by state
const LANE = 26;
const PADDING = 14;
const GAP = 18;
const LEAST_HEIGHT = 56;
const TALLEST_TARGET = 420;
const NARROW = 640;
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
  return [...sources.values()]
    .map((source) => ({ ...source, severity: mostSevere(source.rows), arrows: arrowsOf(source.rows) }))
    .sort((one, other) => one.severity - other.severity || collator.compare(one.name, other.name));
}

const mostSevere = (rows) => rows.reduce((least, row) => Math.min(least, row.severity), Infinity);

function arrowsOf(rows) {
  const groups = Object.keys(GROUPS);
  const groupOf = (row) => stateOf(row.view.status).group;
  if (rows.length <= MOST_SINGLE) {
    return [...rows]
      .sort((one, other) => one.severity - other.severity)
      .map((row) => ({ group: groupOf(row), rows: [row] }));
  }
  return groups
    .map((group) => ({ group, rows: rows.filter((row) => groupOf(row) === group) }))
    .filter((arrow) => arrow.rows.length > 0);
}

/** Boxes and curves for a drawing that is `width` wide: sources on the left, this cluster on the right. */
export function place(sources, width) {
  const isNarrow = width < NARROW;
  const boxWidth = Math.round(Math.min(260, width * (isNarrow ? 0.3 : 0.24)));
  const level = (width - 2 * boxWidth) * (isNarrow ? 0.6 : 0.4);
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
  return { height, target, boxes, isNarrow, level, curves: curvesOf(sources, boxes, { target, lanes, level }) };
}

/** A curve begins level, so that no other crosses its label; handles that lie level let it bend gently. */
function curvesOf(sources, boxes, { target, lanes, level }) {
  let lane = 0;
  return sources.map((source, index) =>
    source.arrows.map((_, at) => {
      const box = boxes[index];
      const from = { x: box.x + box.width, y: box.y + (box.height * (at + 0.5)) / source.arrows.length };
      const to = { x: target.x - 10, y: target.y + (target.height * (lane + 0.5)) / lanes };
      lane += 1;
      const bend = (to.x - from.x - level) / 2;
      const middle = from.x + level + bend;
      return { from, to, path: `M${from.x} ${from.y}h${level}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}` };
    }),
  );
}
