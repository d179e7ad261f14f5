/** Clusters as boxes, links as arrows: state by colour, dashes and icon, rate by thickness. */

import { byId, h, s, set, text } from "./dom.js";
import { plural, rate } from "./format.js";
import { curvesOf, nodesOf, place, sourcesOf, targetTop } from "./layout.js";
import { differences, lined } from "./names.js";
import { format } from "./router.js";
import { GROUPS, STATES, stateOf } from "./states.js";

const ICON = 16;
const LABEL_AT = 14;
const LETTER = 0.58; // of the size of letters, on average
const BOLD = 1.1;

export class Topology {
  #svg = byId("map");
  #legend = new Map();
  #nodes = [];
  #placed = null;
  #arrows = [];
  #target = null;
  #drawn = "";
  #letters = 0;
  #broadness = 1.6;
  #following = 0;

  constructor(onResize) {
    for (const [group, { label, dash }] of Object.entries(GROUPS)) {
      const made = sample(group, label, dash);
      this.#legend.set(group, made);
      byId("legend").append(made.node);
    }
    new ResizeObserver(onResize).observe(byId("map-frame"));
    addEventListener("scroll", () => this.#followSoon(), { passive: true });
    addEventListener("resize", () => this.#followSoon(), { passive: true });
  }

  /** Redraws when links or states change; otherwise only updates the rates. */
  show(rows, about, { now, route }) {
    const width = Math.floor(byId("map-frame").clientWidth);
    if (width === 0) return;
    const sources = sourcesOf(rows);
    const nodes = nodesOf(sources, openOf(route));
    this.#showLegend(sources, nodes, route);
    const shape = nodes.map(({ name, isKnown, arrows }) => [name, isKnown, arrows.map(keyOf)]);
    const key = JSON.stringify([width, innerHeight, about.cluster, route.open, shape]);
    if (key !== this.#drawn) this.#draw(nodes, { width, about, route });
    this.#drawn = key;
    this.#flow(nodes, now);
  }

  /** Each state with the number of its clusters; a click opens or closes them. */
  #showLegend(sources, nodes, route) {
    for (const [group, { link, number }] of this.#legend) {
      const found = sources.filter((source) => source.group === group).length;
      const shown = nodes.filter((node) => node.group === group && !node.isRest).length;
      const isOpen = found > 0 && shown === found;
      text(number, found === 0 ? "" : plural(found, "cluster"));
      set(link, "href", found === 0 ? null : hrefWith(route, group, !isOpen));
      set(link, "aria-label", found === 0 ? null : `${GROUPS[group].label}, ${plural(found, "cluster")}: ${isOpen ? "show as one" : "show each"}`);
      set(link, "data-open", found === 0 ? null : String(isOpen));
    }
  }

  #draw(nodes, { width, about, route }) {
    const placed = place(nodes, width, innerHeight);
    this.#nodes = nodes;
    this.#placed = placed;
    this.#broadness = placed.isNarrow ? 0.6 : 1.6;
    this.#letters = placed.isNarrow ? 0 : Math.floor((placed.level - 2 * LABEL_AT) / (LETTER * letterSize()));
    set(this.#svg, "viewBox", `0 0 ${width} ${placed.height}`);
    set(this.#svg, "width", width);
    set(this.#svg, "height", placed.height);
    const curves = curvesOf(nodes, placed, 0);
    this.#arrows = nodes.flatMap((node, index) =>
      node.arrows.map((arrow, at) => arrowOf(node, arrow, curves[index][at])),
    );
    const differs = differences(nodes.map(({ name }) => name));
    const most = placed.isNarrow ? 2 : 1;
    const boxOf = (node, at) =>
      node.isRest ? restBox(node, at, { route, isNarrow: placed.isNarrow }) : sourceBox(node, at, { most, differs: differs.get(node.name) });
    const own = about.cluster ?? "this cluster";
    this.#target = box({ ...placed.target, y: 0 }, "target", { name: own, most: placed.isNarrow ? 4 : 1, notes: ["downstream"] });
    this.#svg.replaceChildren(
      ...this.#arrows.map(({ node }) => node),
      ...nodes.map((node, index) => boxOf(node, placed.boxes[index])),
      this.#target,
    );
    this.#follow();
  }

  #followSoon() {
    this.#following ||= requestAnimationFrame(() => {
      this.#following = 0;
      this.#follow();
    });
  }

  /** This cluster stays in sight while a tall drawing is scrolled, and the arrows lead to it. */
  #follow() {
    if (!this.#placed || this.#svg.clientWidth === 0) return;
    const { top } = this.#svg.getBoundingClientRect();
    const at = targetTop(this.#placed, { top: -top, bottom: innerHeight - top });
    set(this.#target, "transform", `translate(0 ${at.toFixed(1)})`);
    const curves = curvesOf(this.#nodes, this.#placed, at).flat();
    this.#arrows.forEach(({ line, reach, head }, index) => {
      const { path, to } = curves[index];
      set(line, "d", path);
      set(reach, "d", path);
      set(head, "d", headAt(to));
    });
  }

  #flow(nodes, now) {
    const arrows = nodes.flatMap((source) => source.arrows.map((arrow) => ({ source, arrow })));
    arrows.forEach(({ source, arrow }, index) => {
      const { node, line, head, label, plate } = this.#arrows[index];
      const flow = arrow.rows.reduce((sum, row) => sum + (row.view.rate ?? 0), 0);
      const thickness = 1.5 + this.#broadness * Math.log10(1 + flow);
      line.style.strokeWidth = `${thickness.toFixed(1)}px`;
      head.style.strokeWidth = `${Math.min(4, thickness).toFixed(1)}px`;
      writeLabel(label, plate, labelOf(arrow, flow, this.#letters));
      set(node, "aria-label", describe(source, arrow, flow));
    });
  }
}

const headAt = (to) => `M${to.x - 1} ${to.y - 5}l9 5-9 5`;

/** `open=up,-down` in the address: the clusters of a state, each or as one. */
export function openOf(route) {
  const given = route.open.split(",").filter(Boolean);
  return new Map(given.map((each) => [each.replace(/^-/, ""), !each.startsWith("-")]));
}

export function hrefWith(route, group, isOpen) {
  const open = openOf(route).set(group, isOpen);
  return format({ ...route, view: "topology", open: [...open].map(([name, is]) => (is ? name : `-${name}`)).join(",") });
}

function sample(group, label, dash) {
  const path = s("path", { d: "M0 4h40", "stroke-dasharray": dash });
  const stroke = s("svg", { class: "stroke", viewBox: "0 0 40 8", "aria-hidden": "true" }, path);
  const number = h("span", { class: "where" });
  const link = h("a", {}, stroke, label, number);
  return { node: h("li", { "data-group": group }, link), link, number };
}

const keyOf = ({ group, rows }) => [group, rows.length, rows[0].view.status, rows.length === 1 && rows[0].id];

const isBundle = (arrow) => arrow.rows.length > 1;

export function labelOf(arrow, flow, letters) {
  const shown = flow > 0 ? rate(flow) : "";
  if (letters === 0) return isBundle(arrow) ? `${arrow.rows.length} ×` : shown;
  const left = letters - shown.length - 6;
  const what = isBundle(arrow) ? plural(arrow.rows.length, "link") : shorten(titleOf(arrow.rows[0]), left);
  return [what, shown].filter(Boolean).join(" · ");
}

/** A shovel may bring messages to any broker, not only to the cluster that the arrow leads to. */
const titleOf = ({ view, name, target }) =>
  view.kind === "shovel" ? `${name} → ${target} at ${view.destination_uri}` : name;

export function describe(source, arrow, flow) {
  const [row] = arrow.rows;
  if (!isBundle(arrow)) return `${titleOf(row)} from ${source.name}: ${row.view.status}, ${rate(flow)}`;
  return `${plural(arrow.rows.length, "link")} from ${source.name} ${GROUPS[arrow.group].label}, ${rate(flow)}`;
}

export function hrefOf(source, arrow) {
  if (!isBundle(arrow)) return format({ view: "link", id: arrow.rows[0].id });
  const states = Object.keys(STATES).filter((status) => STATES[status].group === arrow.group);
  return format({ view: "links", from: source.isRest ? "" : source.name, state: states.join(",") });
}

function arrowOf(source, arrow, { from, to, path }) {
  const status = arrow.rows[0].view.status;
  const at = { x: from.x + LABEL_AT, y: from.y };
  const line = s("path", { class: "arrow", d: path, "stroke-dasharray": GROUPS[arrow.group].dash });
  const head = s("path", { class: "head", d: headAt(to) });
  const label = s("text", { class: "label", x: at.x + ICON + 5, y: at.y + 4 });
  const plate = s("rect", { class: "plate", x: at.x - 4, y: at.y - ICON / 2 - 3, height: ICON + 6, rx: 6 });
  const place = `translate(${at.x} ${at.y - ICON / 2})`;
  const sign = s("path", { class: "sign", d: stateOf(status).shape, transform: place });
  const reach = s("path", { class: "reach", d: path });
  const attributes = { href: hrefOf(source, arrow), class: "link", "data-group": arrow.group };
  const node = s("a", attributes, reach, line, head, plate, sign, label);
  return { node, line, reach, head, label, plate };
}

/** The plate behind a label keeps it readable on the thickest arrow. */
function writeLabel(label, plate, words) {
  text(label, words);
  set(plate, "width", Math.ceil(ICON + 8 + (words === "" ? 0 : 6 + words.length * LETTER * letterSize())));
}

const letterSize = () => 0.8125 * parseFloat(getComputedStyle(document.documentElement).fontSize);

function sourceBox(source, at, { most, differs }) {
  const known = source.isKnown ? "upstream" : "upstream, not reached yet";
  const notes = [plural(source.rows.length, "link"), at.height > 70 ? known : ""].filter(Boolean);
  const href = format({ view: "links", from: source.name });
  const label = `${source.name}, ${known}: ${plural(source.rows.length, "link")}`;
  const kind = source.isKnown ? "source" : "source unknown";
  return s("a", { href, "aria-label": label }, box(at, kind, { name: source.name, most, differs, notes }));
}

/** Several clusters in one state, drawn as one; a click shows each. */
function restBox(node, at, { route, isNarrow }) {
  const what = [GROUPS[node.group].label, plural(node.rows.length, "link")];
  const notes = isNarrow ? what : [what.join(" · ")];
  const names = node.sources.map((source) => source.name).join(", ");
  const label = `${node.name}, ${what.join(" · ")}; show each`;
  const pile = s("rect", { class: "pile", x: at.x + 4, y: at.y + 4, width: at.width, height: at.height, rx: 8 });
  const drawn = box(at, "source rest", { name: node.name, notes, title: names });
  return s("a", { href: hrefWith(route, node.group, true), "aria-label": label, "data-group": node.group }, pile, drawn);
}

/** A box with its lines of text: a name of `most` lines and notes below. The tooltip has what was shortened. */
function box({ x, y, width, height }, kind, { name, notes, most = 1, differs, title = name }) {
  const letters = (width - (most > 1 ? 10 : 20)) / (letterSize() * LETTER);
  const lines = lined(name, Math.floor(letters / BOLD), most, differs);
  const step = lines.length + notes.length > 2 ? 16 : 18;
  const top = y + height / 2 - ((lines.length + notes.length - 1) * step) / 2 + 4;
  const middle = x + width / 2;
  const pieces = lines.map((line, at) => s("tspan", { x: middle, y: top + at * step }, line));
  const texts = notes.map((note, at) => {
    const attributes = { x: middle, y: top + (lines.length + at) * step, class: "note" };
    return s("text", attributes, shorten(note, Math.floor(letters)));
  });
  const rect = s("rect", { x, y, width, height, rx: 8 });
  return s("g", { class: `box ${kind}` }, s("title", {}, title), rect, s("text", { class: "title" }, ...pieces), ...texts);
}

const shorten = (words, letters) => (words.length > letters ? `${words.slice(0, Math.max(1, letters - 1))}…` : words);
