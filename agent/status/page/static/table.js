/** The table of links. Only visible rows exist; two thousand links cost as much as two dozen. */

import { byId, h, set } from "./dom.js";
import { format, sortOf } from "./router.js";
import { COLUMNS, RowView } from "./row.js";

const SPARE = 6; // rows beyond each edge, so that keys and fast fingers find one
const HOLD = 10_000; // ms; a pointer that doesn't move keeps no order

export class Table {
  #body = byId("rows");
  #heads = new Map();
  #views = new Map();
  #order = [];
  #height = 0;
  #moment = { clock: 0, now: 0 };
  #touched = -Infinity;
  #onRelease;
  #selection;
  #all = h("input", { type: "checkbox", class: "choose", "aria-label": "Select all of these links" });
  #last = null;

  /** `onRelease` is called when neither the pointer nor the focus is on a row any more. */
  constructor({ onRelease, selection }) {
    this.#onRelease = onRelease;
    this.#selection = selection;
    this.#all.addEventListener("change", () => this.#chooseAll());
    this.#body.addEventListener("click", (event) => this.#choose(event));
    byId("heads").append(...COLUMNS.map((column) => this.#head(column)));
    this.#body.addEventListener("click", (event) => this.#follow(event));
    this.#body.addEventListener("keydown", (event) => this.#walk(event));
    for (const type of ["pointermove", "focusin", "keydown"]) {
      this.#body.addEventListener(type, () => (this.#touched = performance.now()), { passive: true });
    }
    this.#body.addEventListener("focusout", () => requestAnimationFrame(() => this.#release()));
    this.#body.addEventListener("mouseleave", () => this.#release());
    addEventListener("scroll", () => this.#draw({ onlyNew: true }), { passive: true });
    new ResizeObserver(() => this.#measure()).observe(this.#body);
  }

  /** Rows must not move away from under a pointer, or from under the focus. */
  get isHeld() {
    return performance.now() - this.#touched < HOLD && this.#body.matches(":hover, :focus-within");
  }

  show(rows, route, moment) {
    this.#order = rows;
    this.#moment = moment;
    set(byId("table"), "aria-rowcount", rows.length + 1);
    this.#body.style.setProperty("--count", rows.length);
    this.#showSort(route);
    const chosen = rows.reduce((sum, row) => sum + (this.#selection.has(row.id) ? 1 : 0), 0);
    this.#all.checked = chosen > 0 && chosen === rows.length;
    this.#all.indeterminate = chosen > 0 && chosen < rows.length;
    if (this.#height === 0) this.#measure();
    this.#draw();
  }

  #head({ key, label, numeric, roomy }) {
    if (key === "chosen") return h("th", { role: "columnheader", scope: "col", class: "cell-chosen" }, this.#all);
    const link = h("a", { href: "#" }, label);
    const head = h("th", { role: "columnheader", scope: "col", class: `cell-${key}`, "data-numeric": numeric }, link);
    if (roomy) head.dataset.roomy = "";
    this.#heads.set(key, { head, link, numeric });
    return head;
  }

  /** A second click reverses the order; numbers begin with the largest. */
  #showSort(route) {
    const { key, descending } = sortOf(route);
    for (const [name, { head, link, numeric }] of this.#heads) {
      const sorted = name === key;
      set(head, "aria-sort", sorted ? (descending ? "descending" : "ascending") : null);
      const next = sorted ? !descending : Boolean(numeric);
      set(link, "href", format({ ...route, view: "links", sort: next ? `-${name}` : name }));
    }
  }

  #measure() {
    const probe = h("tr", { role: "presentation" });
    this.#body.append(probe);
    this.#height = probe.getBoundingClientRect().height;
    probe.remove();
    this.#draw();
  }

  /** Scrolling doesn't redraw rows that were already visible. */
  #draw({ onlyNew = false } = {}) {
    if (this.#order.length === 0) this.#drop(new Set());
    if (this.#height === 0 || this.#body.offsetParent === null) return;
    const top = -this.#body.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / this.#height) - SPARE);
    const last = Math.min(this.#order.length, Math.ceil((top + innerHeight) / this.#height) + SPARE);
    const shown = this.#order.slice(first, Math.max(first, last));
    this.#drop(new Set(shown));
    let place = this.#body.firstChild;
    shown.forEach((row, index) => {
      const known = this.#views.get(row);
      const view = known ?? new RowView(row);
      this.#views.set(row, view);
      if (!known || !onlyNew) view.show(first + index, this.#moment, this.#selection.has(row.id));
      if (view.node === place) place = place.nextSibling;
      else this.#body.insertBefore(view.node, place);
    });
  }

  #drop(wanted) {
    for (const [row, view] of this.#views) {
      if (wanted.has(row)) continue;
      view.node.remove();
      this.#views.delete(row);
    }
  }

  #chooseAll() {
    this.#selection.choose(this.#order.map((row) => row.id), this.#all.checked);
  }

  /** With Shift all rows from the last one that was chosen. */
  #choose(event) {
    if (!event.target.matches(".choose")) return;
    const { id } = event.target.closest("tr").dataset;
    const at = this.#order.findIndex((row) => row.id === id);
    const from = event.shiftKey && this.#last !== null ? this.#order.findIndex((row) => row.id === this.#last) : at;
    const [first, last] = [Math.min(at, from < 0 ? at : from), Math.max(at, from)];
    this.#selection.choose(this.#order.slice(first, last + 1).map((row) => row.id), event.target.checked);
    this.#last = id;
  }

  /** The whole row is clickable like its name; the keyboard and screen readers use the name. */
  #follow(event) {
    if (event.target.closest("a, input, .cell-chosen") || getSelection().toString() !== "") return;
    event.target.closest("tr")?.querySelector("a").click();
  }

  #walk(event) {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const next = step && event.target.closest("tr")?.[step];
    if (!next) return;
    event.preventDefault();
    next.querySelector("a").focus();
  }

  #release() {
    if (!this.isHeld) this.#onRelease();
  }
}
