/** A line over time with its axes and the value under the pointer, and states over time. */

import { byId, h, s, set, text } from "./dom.js";
import { stateOf } from "./states.js";
import { clockMinutes, moment, offset, zoneName } from "./zone.js";

const HEIGHT = 150;
const LEFT = 56; // at least, so that charts with short labels have the same times
const BOTTOM = 22;
const TOP = 10;
const RIGHT = 18; // half of a time at least, which may be at the end
const STRIP = 10;
const LETTER = 6.8; // px; of a label's letters, at most
const BETWEEN = 78; // px from one time to the next, at least
const MINUTE = 60_000;
const TICKS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720].map((minutes) => minutes * MINUTE);

/** The moment that the pointer is at, or the keys; the same in all charts. */
export class Cursor extends EventTarget {
  time = null;

  move(time) {
    this.time = time;
    this.dispatchEvent(new Event("move"));
  }
}

/** `name` is that of the elements `…-chart` and `…-readout`; `show` writes a value, `ceiling` is the top of an axis. */
export class Chart {
  #frame;
  #readout;
  #cursor;
  #options;
  #points = [];
  #current = null;
  #scale = null;
  #mark = s("g", { class: "mark" });

  constructor(name, cursor, options) {
    this.#frame = byId(`${name}-chart`);
    this.#readout = byId(`${name}-readout`);
    this.#cursor = cursor;
    this.#options = options;
    set(this.#frame, "tabindex", 0);
    set(this.#frame, "role", "group");
    this.#frame.addEventListener("pointermove", (event) => this.#point(event));
    this.#frame.addEventListener("pointerdown", (event) => this.#point(event));
    for (const type of ["pointerleave", "blur"]) this.#frame.addEventListener(type, () => cursor.move(null));
    this.#frame.addEventListener("keydown", (event) => this.#walk(event));
    cursor.addEventListener("move", () => this.#showMark());
  }

  /**
   * `points` are pairs of time and value; a value null is a gap. `span` is the first and the last moment shown.
   * `current` is the value of this moment, which no average over a point of the chart is.
   */
  show(points, span, current) {
    const { show, label, ceiling } = this.#options;
    const width = this.#frame.clientWidth;
    if (width === 0) return;
    const known = points.filter(([time, value]) => value !== null && time >= span[0]);
    const top = ceiling(Math.max(0, ...known.map(([, value]) => value)));
    const names = [0, 0.5, 1].map((part) => show(part * top));
    const left = Math.max(LEFT, Math.ceil(Math.max(...names.map((name) => name.length)) * LETTER) + 12);
    const x = (time) => left + ((time - span[0]) / (span[1] - span[0])) * (width - left - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
    this.#points = known;
    this.#current = current;
    this.#scale = { x, y, left, width, span };
    const told = known.length > 0 ? `now ${show(current)}` : "nothing is known of this time";
    set(this.#frame, "aria-label", `${label}, ${told}; arrow keys read other times`);
    const attributes = { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, "aria-hidden": "true" };
    this.#frame.replaceChildren(
      s(
        "svg",
        attributes,
        ...names.flatMap((name, at) => rule(y((at / 2) * top), name, { left, width })),
        ...timesOf(span, width - left).map((time) => timeTick(time, x(time))),
        ...runsOf(points.filter(([time]) => time >= span[0])).flatMap((run) => lineOf(run, x, y)),
        known.length === 0
          ? s("text", { class: "tick", x: (left + width) / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "no data yet")
          : null,
        this.#mark,
      ),
    );
    this.#showMark();
  }

  #point(event) {
    if (!this.#scale) return;
    const { left, width, span } = this.#scale;
    const part = (event.clientX - this.#frame.getBoundingClientRect().left - left) / (width - left - RIGHT);
    this.#cursor.move(span[0] + Math.min(1, Math.max(0, part)) * (span[1] - span[0]));
  }

  #walk(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || this.#points.length === 0) return;
    event.preventDefault();
    const at = this.#cursor.time === null ? this.#points.length : this.#nearest(this.#cursor.time);
    this.#cursor.move(this.#points[Math.min(this.#points.length - 1, Math.max(0, at + step))][0]);
  }

  #nearest(time) {
    const far = (at) => Math.abs(this.#points[at][0] - time);
    return this.#points.reduce((best, _, at) => (far(at) < far(best) ? at : best), 0);
  }

  #showMark() {
    const { time } = this.#cursor;
    if (time === null || this.#points.length === 0 || !this.#scale) {
      this.#mark.replaceChildren();
      text(this.#readout, this.#points.length > 0 ? this.#options.show(this.#current) : "");
      return;
    }
    const [at, value] = this.#points[this.#nearest(time)];
    const { x, y } = this.#scale;
    this.#mark.replaceChildren(
      s("line", { class: "cursor", x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM }),
      s("circle", { cx: x(at), cy: y(value), r: 3.5 }),
    );
    text(this.#readout, `${this.#options.show(value)} at ${moment(at)} ${zoneName(at)}`);
  }
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
  return h("div", {}, s("svg", frame, ...rects), h("div", { class: "strip-ends" }, ...span.map(endOf)));
}

const endOf = (time) => h("span", {}, clockMinutes(time));

function rule(at, name, { left, width }) {
  return [
    s("line", { class: "rule", x1: left, x2: width - RIGHT, y1: at, y2: at }),
    s("text", { class: "tick", x: left - 8, y: at + 4, "text-anchor": "end" }, name),
  ];
}

/** Round times of the day, as many as there is room for. */
export function timesOf(span, width) {
  const most = Math.max(2, Math.floor(width / BETWEEN));
  const step = TICKS.find((each) => (span[1] - span[0]) / each <= most) ?? TICKS.at(-1);
  const ahead = offset(span[1]);
  const found = [];
  const first = Math.ceil((span[0] + ahead) / step) * step - ahead;
  for (let time = first; time <= span[1]; time += step) found.push(time);
  return found;
}

const timeTick = (time, x) => s("text", { class: "tick", x, y: HEIGHT - 6, "text-anchor": "middle" }, clockMinutes(time));

function lineOf(run, x, y) {
  const path = `M${run.map(([time, value]) => `${x(time).toFixed(1)} ${y(value).toFixed(1)}`).join("L")}`;
  return [
    s("path", { class: "area", d: `${path}L${x(run.at(-1)[0])} ${y(0)}L${x(run[0][0])} ${y(0)}Z` }),
    s("path", { class: "line", d: path }),
  ];
}

/** The runs of points between gaps; a point alone is a short line. */
export function runsOf(points) {
  const runs = [[]];
  for (const point of points) {
    if (point[1] === null) runs.push([]);
    else runs.at(-1).push(point);
  }
  return runs.filter((run) => run.length > 0).map((run) => (run.length > 1 ? run : [run[0], run[0]]));
}

/** The smallest of 2, 4, 10, 20, 40 … that is not below the value: half of it is a whole number too. */
export function ceiling(value) {
  if (value <= 2) return 2;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 10].find((factor) => factor * power >= value) * power;
}

const DURATIONS = [2, 4, 10, 20, 60, 120, 240, 600, 1_200, 3_600, 7_200, 14_400, 43_200, 86_400];

/** The same for seconds: half of it is short in words. */
export const ceilingOfSeconds = (value) =>
  DURATIONS.find((each) => each >= value) ?? Math.ceil(value / 172_800) * 172_800;
