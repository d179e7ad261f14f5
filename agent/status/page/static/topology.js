/** Clusters as boxes, links as arrows: state by colour, dashes and icon, rate by thickness. */

import { byId, h, s, set, text } from "./dom.js";
import { plural, rate } from "./format.js";
import { place, sourcesOf } from "./layout.js";
import { format } from "./router.js";
import { GROUPS, STATES, stateOf } from "./states.js";

const ICON = 16;
const LETTER = 0.58; // of the size of letters, on average

export class Topology {
  #svg = byId("map");
  #arrows = [];
  #drawn = "";
  #letters = 0;

  constructor(onResize) {
    byId("legend").append(...Object.entries(GROUPS).map(([group, { label, dash }]) => sample(group, label, dash)));
    new ResizeObserver(onResize).observe(byId("map-frame"));
  }

  /** Draws anew where links or states are others; between that only what flows changes. */
  show(rows, about, now) {
    const width = Math.floor(byId("map-frame").clientWidth);
    if (width === 0) return;
    const sources = sourcesOf(rows);
    const key = JSON.stringify([width, about.cluster, sources.map(({ name, isKnown, arrows }) => [name, isKnown, arrows.map(keyOf)])]);
    if (key !== this.#drawn) this.#draw(sources, { width, about });
    this.#drawn = key;
    this.#flow(sources, now);
  }

  #draw(sources, { width, about }) {
    const { height, target, boxes, curves, letters } = place(sources, width);
    this.#letters = letters;
    set(this.#svg, "viewBox", `0 0 ${width} ${height}`);
    set(this.#svg, "width", width);
    set(this.#svg, "height", height);
    this.#arrows = sources.flatMap((source, index) =>
      source.arrows.map((arrow, at) => arrowOf(source, arrow, curves[index][at])),
    );
    this.#svg.replaceChildren(
      ...this.#arrows.map(({ node }) => node),
      ...sources.map((source, index) => sourceBox(source, boxes[index])),
      box(target, "target", [about.cluster ?? "this cluster", "downstream"]),
    );
  }

  #flow(sources, now) {
    const arrows = sources.flatMap((source) => source.arrows.map((arrow) => ({ source, arrow })));
    arrows.forEach(({ source, arrow }, index) => {
      const { node, line, head, label, plate } = this.#arrows[index];
      const flow = arrow.rows.reduce((sum, row) => sum + (row.series.rate(now) ?? 0), 0);
      const thickness = 1.5 + 1.6 * Math.log10(1 + flow);
      line.style.strokeWidth = `${thickness.toFixed(1)}px`;
      head.style.strokeWidth = `${Math.min(4, thickness).toFixed(1)}px`;
      writeLabel(label, plate, labelOf(arrow, flow, this.#letters));
      set(node, "aria-label", describe(source, arrow, flow));
    });
  }
}

function sample(group, label, dash) {
  const path = s("path", { d: "M0 4h40", "stroke-dasharray": dash });
  return h("li", { "data-group": group }, s("svg", { class: "stroke", viewBox: "0 0 40 8", "aria-hidden": "true" }, path), label);
}

const keyOf = (arrow) => [arrow.group, arrow.rows.length, arrow.rows.length === 1 && [arrow.rows[0].id, arrow.rows[0].view.status]];

const isBundle = (arrow) => arrow.rows.length > 1;

function labelOf(arrow, flow, letters) {
  const shown = flow > 0 ? rate(flow) : "";
  if (letters === 0) return isBundle(arrow) ? `${arrow.rows.length} ×` : shown;
  const what = isBundle(arrow) ? `${arrow.rows.length} links` : shorten(arrow.rows[0].name, letters);
  return [what, shown].filter(Boolean).join(" · ");
}

function describe(source, arrow, flow) {
  const [row] = arrow.rows;
  if (!isBundle(arrow)) return `${row.name} from ${source.name}: ${row.view.status}, ${rate(flow)}`;
  return `${plural(arrow.rows.length, "link")} from ${source.name} ${GROUPS[arrow.group].label}, ${rate(flow)}`;
}

function hrefOf(source, arrow) {
  if (!isBundle(arrow)) return format({ view: "link", id: arrow.rows[0].id });
  const states = Object.keys(STATES).filter((status) => STATES[status].group === arrow.group);
  return format({ view: "links", from: source.name, state: states.join(",") });
}

function arrowOf(source, arrow, { from, to, bend, label: at }) {
  const status = arrow.rows[0].view.status;
  const curve = `M${from.x} ${from.y}C${from.x + bend} ${from.y} ${to.x - bend} ${to.y} ${to.x} ${to.y}`;
  const line = s("path", { class: "arrow", d: curve, "stroke-dasharray": GROUPS[arrow.group].dash });
  const head = s("path", { class: "head", d: `M${to.x - 1} ${to.y - 5}l9 5-9 5` });
  const label = s("text", { class: "label", x: at.x + ICON / 2 + 5, y: at.y + 4 });
  const plate = s("rect", { class: "plate", x: at.x - ICON / 2 - 4, y: at.y - ICON / 2 - 3, height: ICON + 6, rx: 6 });
  const sign = s("path", { class: "sign", d: stateOf(status).shape, transform: `translate(${at.x - ICON / 2} ${at.y - ICON / 2})` });
  const wide = s("path", { class: "reach", d: curve });
  const node = s("a", { href: hrefOf(source, arrow), class: "link", "data-group": arrow.group }, wide, line, head, plate, sign, label);
  return { node, line, head, label, plate };
}

/** The plate behind a label keeps it readable on the thickest arrow. */
function writeLabel(label, plate, words) {
  text(label, words);
  set(plate, "width", Math.ceil(ICON + 8 + (words === "" ? 0 : 6 + words.length * LETTER * letterSize())));
}

const letterSize = () => 0.8125 * parseFloat(getComputedStyle(document.documentElement).fontSize);

function sourceBox(source, at) {
  const known = source.isKnown ? "upstream" : "upstream, not reached yet";
  const lines = [source.name, plural(source.rows.length, "link"), at.height > 70 ? known : ""];
  const href = format({ view: "links", from: source.name });
  const label = `${source.name}, ${known}: ${plural(source.rows.length, "link")}`;
  return s("a", { href, "aria-label": label }, box(at, source.isKnown ? "source" : "source unknown", lines.filter(Boolean)));
}

/** A box with its lines of text; long names end in dots, and are told in full when pointed at. */
function box({ x, y, width, height }, kind, lines) {
  const middle = y + height / 2 - (lines.length - 1) * 9 + 4;
  const letters = Math.floor((width - 20) / (letterSize() * LETTER * 1.1)); // the first line is bold
  return s(
    "g",
    { class: `box ${kind}` },
    s("title", {}, lines[0]),
    s("rect", { x, y, width, height, rx: 8 }),
    ...lines.map((line, at) => s("text", { x: x + width / 2, y: middle + at * 18, class: at === 0 ? "title" : "note" }, shorten(line, letters))),
  );
}

const shorten = (words, letters) => (words.length > letters ? `${words.slice(0, Math.max(1, letters - 1))}…` : words);
