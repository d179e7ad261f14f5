/** One link as a row of the table. */

import { h, set, text } from "./dom.js";
import { age, count, duration, rate, waiting } from "./format.js";
import { badge, showBadge } from "./icons.js";
import { format } from "./router.js";
import { drawSparkline, sparkline } from "./sparkline.js";
import { moment, zoned } from "./zone.js";

export const COLUMNS = [
  { key: "chosen", label: "" },
  { key: "state", label: "State" },
  { key: "name", label: "Link" },
  { key: "path", label: "Path" },
  { key: "rate", label: "Rate", numeric: true },
  { key: "lag", label: "Lag", numeric: true },
  { key: "forwarded", label: "Forwarded", numeric: true, roomy: true },
  { key: "in_flight", label: "In flight", numeric: true, roomy: true },
  { key: "reconnects", label: "Reconnects", numeric: true, roomy: true },
  { key: "owner", label: "Owner", roomy: true },
];

const cell = (key, ...children) => h("td", { role: "cell", class: `cell-${key}` }, ...children);
const line = (name) => h("div", { class: name });

export class RowView {
  constructor(row) {
    this.row = row;
    this.box = h("input", { type: "checkbox", class: "choose" });
    this.badge = badge(row.shown);
    this.since = h("time", { class: "since" });
    this.reason = line("reason");
    this.link = h("a", { class: "name", href: format({ view: "link", id: row.id }) });
    this.where = line("where");
    this.source = line("source");
    this.target = line("target");
    this.spark = sparkline();
    this.rate = h("span", { class: "figure" });
    this.backlog = line("figure");
    this.oldest = line("where");
    this.figures = { forwarded: line("figure"), in_flight: line("figure"), reconnects: line("figure") };
    this.owner = line("where");
    this.node = this.#build();
  }

  #build() {
    const figures = Object.entries(this.figures).map(([key, node]) => cell(key, node));
    return h(
      "tr",
      { role: "row", "data-id": this.row.id },
      cell("chosen", this.box),
      cell("state", h("div", { class: "status" }, this.badge, this.since), this.reason),
      h("th", { role: "rowheader", scope: "row", class: "cell-name" }, this.link, this.where),
      cell("path", this.source, this.target),
      cell("rate", this.spark, this.rate),
      cell("lag", this.backlog, this.oldest),
      ...figures,
      cell("owner", this.owner),
    );
  }

  /** `at` is the row's place among those shown. */
  show(at, { clock, now }, isChosen) {
    const { view } = this.row;
    this.box.checked = isChosen;
    set(this.box, "aria-label", `Select ${this.row.name}`);
    this.node.style.setProperty("--at", at);
    set(this.node, "aria-rowindex", at + 2); // the first row is the head
    showBadge(this.badge, this.row.shown);
    text(this.since, duration((clock - this.row.since) / 1_000));
    set(this.since, "datetime", view.since);
    set(this.since, "title", `since ${zoned(this.row.since)}`);
    text(this.reason, view.error ?? "");
    set(this.reason, "title", view.error);
    this.#showNames();
    this.#showNumbers(now);
  }

  #showNames() {
    const { view, name, source, remote, destination, target } = this.row;
    text(this.link, name);
    set(this.link, "title", name);
    text(this.where, `${view.kind} in ${view.vhost}${view.upstream && ` · upstream ${view.upstream}`}`);
    set(this.where, "title", this.where.textContent);
    text(this.source, `${source} / ${remote}`);
    set(this.source, "title", this.source.textContent);
    const to = view.kind === "shovel" ? `${destination} / ${target}` : target;
    text(this.target, `→ ${to}`);
    set(this.target, "title", to);
    text(this.owner, view.owner ?? "");
  }

  #showNumbers(now) {
    const { view, series } = this.row;
    drawSparkline(this.spark, series.rates(now));
    text(this.rate, rate(view.rate));
    const isKnown = view.backlog !== null;
    text(this.backlog, waiting(view));
    const at = view.backlog_last_at;
    set(this.backlog, "title", !isKnown && at ? `last known ${moment(Date.parse(at))}` : null);
    const behind = Math.max(view.behind_seconds ?? 0, view.oldest_unconfirmed_seconds);
    text(this.oldest, behind ? age(behind) : "");
    for (const [key, node] of Object.entries(this.figures)) text(node, count(view[key]));
  }
}
