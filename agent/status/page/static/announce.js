/** Announces changes of links to screen readers: rarely, together, and only important ones. */

import { text } from "./dom.js";
import { plural } from "./format.js";
import { stateOf } from "./states.js";

const GATHER = 3_000; // ms
const NAMED = 3;

export class Announcer {
  #region;
  #moved = new Map();
  #timer = 0;

  constructor(region) {
    this.#region = region;
  }

  /** A link that recovered before its failure was announced is not announced. */
  moved({ row, previous }) {
    const known = this.#moved.get(row.id);
    this.#moved.set(row.id, { row, before: known ? known.before : stateOf(previous).group });
    this.#timer ||= setTimeout(() => this.#tell(), GATHER);
  }

  #tell() {
    this.#timer = 0;
    const news = newsOf([...this.#moved.values()]);
    this.#moved.clear();
    if (news !== "") text(this.#region, news);
  }
}

/** In sentences, the worst first; `before` is the group of states that a link was in. */
export function newsOf(moved) {
  const news = moved.filter(({ row, before }) => before !== stateOf(row.shown).group);
  const told = [
    [news.filter(({ row }) => stateOf(row.shown).group === "down"), "down"],
    [news.filter(({ row }) => stateOf(row.shown).group === "degraded"), "degraded"],
    [news.filter(({ row }) => stateOf(row.shown).group === "up"), "running"],
  ];
  return told.filter(([links]) => links.length > 0).map(([links, what]) => sentence(links, what)).join(" ");
}

function sentence(links, what) {
  const names = links.slice(0, NAMED).map(({ row }) => row.name);
  const rest = links.length > NAMED ? " and others" : "";
  return `${plural(links.length, "link")} ${what}: ${names.join(", ")}${rest}.`;
}
