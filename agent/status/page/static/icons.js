/** Icons of states: each has its own shape, so that none depends on colour alone. */

import { h, s, set, text } from "./dom.js";
import { stateOf } from "./states.js";

export function icon(status) {
  const attributes = { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" };
  return s("svg", attributes, s("path", { d: stateOf(status).shape }));
}

/** A state with its icon and its name. */
export function badge(status) {
  const made = h("span", { class: "badge" }, icon(status), h("span"));
  showBadge(made, status);
  return made;
}

export function showBadge(made, status) {
  const state = stateOf(status);
  set(made, "data-group", state.group);
  set(made.querySelector("path"), "d", state.shape);
  text(made.lastChild, state.label);
}
