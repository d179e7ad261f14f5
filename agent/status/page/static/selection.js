/** The links that were chosen in the table, and what to do with them. */

import { actionButtons, showActions } from "./actions.js";
import { byId, h, text } from "./dom.js";
import { plural } from "./format.js";

export class Selection extends EventTarget {
  #ids = new Set();
  #rows = new Map();
  #source = [];
  #buttons;
  #sourceButtons;

  /** `onAct(action, rows, of)` asks for the confirmation. */
  constructor(onAct) {
    super();
    this.#buttons = actionButtons(onAct, () => this.#chosen(), "");
    byId("selection").append(
      this.#buttons,
      h("button", { type: "button", onclick: () => this.clear() }, "Clear selection"),
    );
    this.#sourceButtons = actionButtons(onAct, () => this.#source, "");
    byId("upstream").append(this.#sourceButtons);
  }

  has(id) {
    return this.#ids.has(id);
  }

  choose(ids, isChosen) {
    for (const id of ids) {
      if (isChosen) this.#ids.add(id);
      else this.#ids.delete(id);
    }
    this.dispatchEvent(new Event("change"));
  }

  #chosen() {
    return [...this.#ids].map((id) => this.#rows.get(id)).filter(Boolean);
  }

  clear() {
    this.choose([...this.#ids], false);
    byId("links-title").focus({ preventScroll: true });
  }

  /** `rows` are all links by id; those that are gone are forgotten. */
  show(rows, source) {
    for (const id of this.#ids) if (!rows.has(id)) this.#ids.delete(id);
    this.#rows = rows;
    const chosen = this.#chosen();
    byId("selection").hidden = chosen.length === 0;
    text(byId("selection-count"), `${plural(chosen.length, "link")} selected`);
    showActions(this.#buttons, chosen);
    this.#source = source === "" ? [] : [...rows.values()].filter((row) => row.source === source);
    byId("upstream").hidden = this.#source.length === 0;
    text(byId("upstream-name"), `All ${plural(this.#source.length, "link")} from ${source}:`);
    showActions(this.#sourceButtons, this.#source);
  }
}
