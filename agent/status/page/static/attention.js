/** What is wrong: one line for each cause, the most important first and open. */

import { OF_CAUSES, actionButtons, offeredFor, showActions } from "./actions.js";
import { advised, copyButton } from "./copy.js";
import { byId, h, set, text } from "./dom.js";
import { plural } from "./format.js";
import { badge, showBadge } from "./icons.js";
import { format } from "./router.js";
import { SHOWN, stateOf } from "./states.js";
import { moment } from "./zone.js";

const CAUSES = 8;
const NAMED = 3;
export const GONE = new Set(["exchange deleted", "queue deleted"]);
const LATE = "further behind than lag-critical";

export class Attention {
  #shown = "";
  #all = false;
  #lines = new Map();
  #buttons = new Map();
  #known = new Map();
  #onAct;
  #onAcknowledge;

  /** `onAct(action, rows, of)` and `onAcknowledge(action, cause)` ask for the confirmation. */
  constructor(onAct, onAcknowledge) {
    this.#onAct = onAct;
    this.#onAcknowledge = onAcknowledge;
    byId("more-causes").addEventListener("click", () => {
      this.#all = !this.#all;
      this.#shown = "";
      this.onToggle();
    });
  }

  onToggle = () => {};

  /** `rows` are all links by id; one that has gone since the causes were read is left out, unless that is the cause. */
  show({ causes }, rows) {
    const known = causes
      .map((cause) => ({ ...cause, rows: cause.links.map((id) => rows.get(id)).filter(Boolean) }))
      .filter((cause) => cause.rows.length > 0 || GONE.has(cause.trouble));
    byId("attention").hidden = known.length === 0;
    if (known.length === 0) return;
    text(byId("attention-title"), known.length === 1 ? "Needs attention" : `Needs attention: ${plural(known.length, "cause")}`);
    const key = JSON.stringify(known.map((cause) => [cause.id, cause.links, cause.error, cause.advice, knownOf(cause)]));
    if (key !== this.#shown) this.#draw(known);
    this.#shown = key;
    this.#known = new Map(known.map((cause) => [cause.id, cause]));
    for (const [at, node] of this.#buttons) showActions(node, this.#known.get(at).rows);
    for (const cause of known) text(this.#lines.get(cause.id), lineOf(cause));
    for (const node of byId("causes").children) showStatus(node, statusOf(this.#known.get(node.dataset.key)));
  }

  #draw(causes) {
    const isOpen = new Map([...byId("causes").children].map((node) => [node.dataset.key, node.firstChild.open]));
    this.#lines = new Map(causes.map((cause) => [cause.id, h("span", { class: "cause-line" })]));
    this.#buttons = new Map();
    const shown = this.#all ? causes : causes.slice(0, CAUSES);
    const nodes = shown.map((cause, at) => this.#cause(cause, isOpen.get(cause.id) ?? at === 0));
    byId("causes").replaceChildren(...nodes);
    const more = byId("more-causes");
    more.hidden = causes.length <= CAUSES;
    text(more, this.#all ? "Show fewer" : `Show ${plural(causes.length - CAUSES, "more cause")}`);
    more.setAttribute("aria-expanded", String(this.#all));
  }

  #cause(cause, isOpen) {
    const details = h(
      "details",
      {},
      h("summary", {}, badge(statusOf(cause)), this.#lines.get(cause.id)),
      cause.acknowledged ? h("p", {}, knownOf(cause)) : null,
      h(
        "div",
        { class: "copied" },
        h("p", { class: "cause-reason" }, cause.error || "No reason is known."),
        cause.error ? copyButton("the error", () => cause.error) : null,
      ),
      h("p", { class: "advice" }, ...advised(cause.advice)),
      GONE.has(cause.trouble) ? null : namesOf(cause.rows),
      h("div", { class: "actions" }, GONE.has(cause.trouble) ? null : this.#actions(cause), this.#acknowledging(cause)),
    );
    set(details, "open", isOpen ? "" : null);
    return h("li", { class: cause.acknowledged ? "cause known" : "cause", "data-key": cause.id }, details);
  }

  #actions(cause) {
    const of = cause.side === "upstream" ? `from ${cause.broker}` : `of ${cause.broker}`;
    const node = actionButtons(this.#onAct, () => this.#known.get(cause.id).rows, of);
    this.#buttons.set(cause.id, node);
    return node;
  }

  #acknowledging(cause) {
    const action = offeredFor(cause);
    const onclick = () => this.#onAcknowledge(action, this.#known.get(cause.id) ?? cause);
    return h("button", { type: "button", onclick }, `${OF_CAUSES[action].label} …`);
  }
}

function showStatus(node, status) {
  set(node, "data-group", stateOf(status).group);
  showBadge(node.querySelector(".badge"), status);
}

/** As the worst of its links is shown; never as well: one that runs at this moment is behind, or may be interrupted again. */
export function statusOf({ trouble, rows }) {
  if (GONE.has(trouble)) return "removing";
  const worst = SHOWN.find((status) => rows.some(({ shown }) => shown === status));
  if (worst !== "running") return worst;
  return trouble === LATE ? "behind" : "interrupted";
}

/** `dc2 (downstream): memory alarm for 4 min, 6 of 13 links blocked, acknowledged by ann@ops`. */
export const lineOf = (cause) => headOf(cause) + (cause.acknowledged ? `, acknowledged by ${cause.acknowledged.by}` : "");

/** When, for how long and why; its line says who knows of it. */
export function knownOf({ acknowledged: known }) {
  if (!known) return "";
  const until = known.until ? `, until ${moment(Date.parse(known.until))}` : "";
  return `Acknowledged at ${moment(Date.parse(known.at))}${until}${known.reason ? `: ${known.reason}` : ""}`;
}

export const headOf = ({ broker, side, headline }) => `${broker} (${side}): ${headline}`;

const namesOf = (rows) =>
  h("ul", { class: "names" }, ...leadsTo(rows).map(({ href, label }) => h("li", {}, h("a", { href }, label))));

/** A few links, each with what tells it from others; if there are many, the first ones and where all are listed. */
export function leadsTo(rows) {
  const named = rows.slice(0, rows.length > NAMED ? NAMED - 1 : NAMED);
  const leads = named.map((row) => ({ href: format({ view: "link", id: row.id }), label: labelOf(row) }));
  if (rows.length <= NAMED) return leads;
  const isOne = new Set(rows.map((row) => row.source)).size === 1;
  const { error } = rows[0].view;
  const isShared = error && rows.every((row) => row.view.error === error);
  const filter = isOne ? { from: rows[0].source } : isShared ? { q: error } : {};
  const state = [...new Set(rows.map((row) => row.shown))].join(",");
  return [...leads, { href: format({ view: "links", state, ...filter }), label: `show all ${plural(rows.length, "link")}` }];
}

/** Links of several vhosts and upstreams may have one name. */
const labelOf = ({ view, name, source }) => `${view.kind} ${name} in ${view.vhost} from ${source}`;
