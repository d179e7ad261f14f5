/** A line over time with its axes, and states over time, drawn at the available width. */

import { s } from "./dom.js";
import { duration } from "./format.js";
import { stateOf } from "./states.js";

const HEIGHT = 150;
const LEFT = 56;
const BOTTOM = 22;
const TOP = 10;
const STRIP = 10;

/** `points` are pairs of time and value; a value null is a gap. `span` is the first and the last moment shown. */
export function chart(points, { span, width, show, label }) {
  const top = ceiling(Math.max(0, ...points.map(([, value]) => value ?? 0)));
  const x = (time) => LEFT + ((time - span[0]) / (span[1] - span[0])) * (width - LEFT - 8);
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
  return s(
    "svg",
    { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": label },
    ...[0, 0.5, 1].flatMap((part) => rule(y(part * top), show(part * top), width)),
    ...times(span, x),
    ...runsOf(points).flatMap((run) => [
      s("path", { class: "area", d: `${pathOf(run, x, y)}L${x(run.at(-1)[0])} ${y(0)}L${x(run[0][0])} ${y(0)}Z` }),
      s("path", { class: "line", d: pathOf(run, x, y) }),
    ]),
  );
}

/** The states in the period that charts show; the list below has the same in words. */
export function strip(transitions, { span, width }) {
  const x = (time) => ((Math.max(time, span[0]) - span[0]) / (span[1] - span[0])) * width;
  const rects = transitions.map(({ at, status }, index) => {
    const begin = x(Date.parse(at));
    const end = index + 1 < transitions.length ? x(Date.parse(transitions[index + 1].at)) : width;
    return s("rect", { x: begin, width: Math.max(0, end - begin), height: STRIP, "data-group": stateOf(status).group });
  });
  const frame = { class: "strip", viewBox: `0 0 ${width} ${STRIP}`, width, height: STRIP, "aria-hidden": "true" };
  return s("svg", frame, ...rects);
}

function rule(at, name, width) {
  return [
    s("line", { class: "rule", x1: LEFT, x2: width - 8, y1: at, y2: at }),
    s("text", { class: "tick", x: LEFT - 8, y: at + 4, "text-anchor": "end" }, name),
  ];
}

function times(span, x) {
  return [0, 0.5, 1].map((part) => {
    const time = span[0] + part * (span[1] - span[0]);
    const ago = part === 1 ? "now" : `${duration((span[1] - time) / 1_000)} ago`;
    const anchor = ["start", "middle", "end"][part * 2];
    return s("text", { class: "tick", x: x(time), y: HEIGHT - 6, "text-anchor": anchor }, ago);
  });
}

const pathOf = (run, x, y) =>
  `M${run.map(([time, value]) => `${x(time).toFixed(1)} ${y(value).toFixed(1)}`).join("L")}`;

/** The runs of points between gaps. */
function runsOf(points) {
  const runs = [[]];
  for (const point of points) {
    if (point[1] === null) runs.push([]);
    else runs.at(-1).push(point);
  }
  return runs.filter((run) => run.length > 1);
}

/** The smallest of 2, 4, 10, 20, 40 … that is not below the value: half of it is a whole number too. */
function ceiling(value) {
  if (value <= 2) return 2;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 10].find((factor) => factor * power >= value) * power;
}
