/** Clusters as boxes, links as arrows from and to any of them: state by colour, dashes and icon, rate by thickness. */

import { byId, h, s, set, text } from "./dom.js";
import { plural, rate } from "./format.js";
import { arrowsOf, clustersOf, curvesOf, nodesOf, OWN, place, targetTop } from "./layout.js";
import { differences, lined } from "./names.js";
import { format } from "./router.js";
import { GROUPS, SHOWN, stateOf } from "./states.js";

const ICON = 16;
const LABEL_AT = 14;
const LETTER = 0.58; // of the size of letters, on average
const BOLD = 1.1;

export class Topology {
  #svg = byId("map");
  #legend = new Map();
  #placed = null;
  #arrows = [];
  #shown = [];
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
  show(rows, about, route) {
    const width = Math.floor(byId("map-frame").clientWidth);
    if (width === 0) return;
    const own = about.cluster ?? "this cluster";
    const clusters = clustersOf(rows, own);
    const nodes = nodesOf(clusters, openOf(route));
    const arrows = arrowsOf(rows, nodes, own);
    this.#showLegend(clusters, nodes, route);
    const boxes = nodes.map(({ name, isKnown, isSource, rows: { length } }) => [name, isKnown, isSource, length]);
    const key = JSON.stringify([width, innerHeight, own, route.open, boxes, arrows.map(keyOf)]);
    if (key !== this.#drawn) this.#draw(nodes, arrows, { width, own, route });
    this.#drawn = key;
    this.#flow(arrows);
  }

  /** Each state with the number of clusters that links in it come from; a click opens or closes them. */
  #showLegend(clusters, nodes, route) {
    for (const [group, { link, number }] of this.#legend) {
      const isCounted = (node) => node.group === group && node.isSource;
      const [found, shown] = [clusters, nodes].map((those) => those.filter(isCounted).length);
      const isOpen = found > 0 && shown === found;
      text(number, found === 0 ? "" : plural(found, "cluster"));
      set(link, "href", found === 0 ? null : hrefWith(route, group, !isOpen));
      set(link, "aria-label", found === 0 ? null : `${GROUPS[group].label}, ${plural(found, "cluster")}: ${isOpen ? "show as one" : "show each"}`);
      set(link, "data-open", found === 0 ? null : String(isOpen));
    }
  }

  #draw(nodes, arrows, { width, own, route }) {
    const placed = place(nodes, arrows, { width, tallest: innerHeight });
    this.#placed = placed;
    this.#arrows = arrows;
    this.#broadness = placed.isNarrow ? 0.6 : 1.6;
    this.#letters = placed.isNarrow ? 0 : Math.floor((placed.level - 2 * LABEL_AT) / (LETTER * letterSize()));
    set(this.#svg, "viewBox", `0 0 ${width} ${placed.height}`);
    set(this.#svg, "width", width);
    set(this.#svg, "height", placed.height);
    this.#shown = arrows.map(arrowOf);
    const differs = differences(nodes.map(({ name }) => name));
    const most = placed.isNarrow ? 2 : 1;
    const boxOf = (node, at) =>
      node.isRest ? restBox(node, at, { route, isNarrow: placed.isNarrow }) : clusterBox(node, at, { most, differs: differs.get(node.name) });
    this.#target = box({ ...placed.target, y: 0 }, "target", { name: own, most: placed.isNarrow ? 4 : 1, notes: ["downstream"] });
    this.#svg.replaceChildren(
      ...this.#shown.map(({ node }) => node),
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
    const curves = curvesOf(this.#arrows, this.#placed, at);
    this.#shown.forEach(({ line, reach, head, mark }, index) => {
      const { path, from, to } = curves[index];
      set(line, "d", path);
      set(reach, "d", path);
      set(head, "d", `M${to.x - to.way} ${to.y - 5}l${-9 * to.way} 5 ${9 * to.way} 5`);
      set(mark, "transform", `translate(${from.x + from.way * LABEL_AT} ${from.y})`);
    });
  }

  #flow(arrows) {
    arrows.forEach((arrow, index) => {
      const { node, line, head, label, plate } = this.#shown[index];
      const flow = arrow.rows.reduce((sum, row) => sum + (row.view.rate ?? 0), 0);
      const thickness = 1.5 + this.#broadness * Math.log10(1 + flow);
      line.style.strokeWidth = `${thickness.toFixed(1)}px`;
      head.style.strokeWidth = `${Math.min(4, thickness).toFixed(1)}px`;
      writeLabel(label, plate, { words: labelOf(arrow, flow, this.#letters), isMirrored: arrow.source.isOwn });
      set(node, "aria-label", describe(arrow, flow));
    });
  }
}

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

const keyOf = ({ from, to, group, rows }) => [from, to, group, rows.length, rows[0].shown, rows.length === 1 && rows[0].id];

const isBundle = (arrow) => arrow.rows.length > 1;

export function labelOf(arrow, flow, letters) {
  const shown = flow > 0 ? rate(flow) : "";
  if (letters === 0) return isBundle(arrow) ? `${arrow.rows.length} ×` : shown;
  const left = letters - shown.length - 6;
  const what = isBundle(arrow) ? plural(arrow.rows.length, "link") : shorten(arrow.rows[0].name, left);
  return [what, shown].filter(Boolean).join(" · ");
}

export function describe({ source, destination, group, rows }, flow) {
  const way = `from ${source.name} to ${destination.name}`;
  if (rows.length === 1) return `${rows[0].name} ${way}: ${rows[0].shown}, ${rate(flow)}`;
  return `${plural(rows.length, "link")} ${way} ${GROUPS[group].label}, ${rate(flow)}`;
}

export function hrefOf({ source, destination, group, rows }) {
  if (rows.length === 1) return format({ view: "link", id: rows[0].id });
  const states = SHOWN.filter((status) => stateOf(status).group === group);
  const to = destination.isOwn || destination.isRest ? "" : destination.name;
  return format({ view: "links", from: source.isRest ? "" : source.name, q: to, state: states.join(",") });
}

/** Its label stands at its begin: of one that comes from this cluster, on the left. */
function arrowOf(arrow) {
  const { group, rows, source } = arrow;
  const line = s("path", { class: "arrow", "stroke-dasharray": GROUPS[group].dash });
  const head = s("path", { class: "head" });
  const label = s("text", { class: "label", x: (ICON + 5) * (source.isOwn ? -1 : 1), y: 4, "text-anchor": source.isOwn ? "end" : null });
  const plate = s("rect", { class: "plate", y: -ICON / 2 - 3, height: ICON + 6, rx: 6 });
  const place = `translate(${source.isOwn ? -ICON : 0} ${-ICON / 2})`;
  const sign = s("path", { class: "sign", d: stateOf(rows[0].shown).shape, transform: place });
  const reach = s("path", { class: "reach" });
  const mark = s("g", {}, plate, sign, label);
  const node = s("a", { href: hrefOf(arrow), class: "link", "data-group": group }, reach, line, head, mark);
  return { node, line, reach, head, mark, label, plate };
}

/** The plate behind a label keeps it readable on the thickest arrow. */
function writeLabel(label, plate, { words, isMirrored }) {
  text(label, words);
  const width = Math.ceil(ICON + 8 + (words === "" ? 0 : 6 + words.length * LETTER * letterSize()));
  set(plate, "width", width);
  set(plate, "x", isMirrored ? 4 - width : -4);
}

const letterSize = () => 0.8125 * parseFloat(getComputedStyle(document.documentElement).fontSize);

function clusterBox(node, at, { most, differs }) {
  const known = [node.isSource ? "upstream" : "destination", node.isKnown ? "" : "not reached yet"].filter(Boolean).join(", ");
  const links = plural(node.rows.length, "link");
  const href = format({ view: "links", [node.isSource ? "from" : "q"]: node.name });
  const short = at.width > 200 && known !== "upstream" ? `${links} · ${known}` : links;
  const notes = at.height > 70 ? [links, known] : [short];
  const drawn = box(at, `source${node.isKnown ? "" : " unknown"}`, { name: node.name, most, differs, notes });
  return s("a", { href, "aria-label": `${node.name}, ${known}: ${links}` }, drawn);
}

/** Several clusters in one state, drawn as one; a click shows each. */
function restBox(node, at, { route, isNarrow }) {
  const what = [GROUPS[node.group].label, plural(node.rows.length, "link")];
  const notes = isNarrow ? what : [what.join(" · ")];
  const names = node.clusters.map(({ name }) => name).join(", ");
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
