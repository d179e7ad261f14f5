/** The last changes of a link's state, the latest first. */

import { copyButton } from "./copy.js";
import { h } from "./dom.js";
import { duration } from "./format.js";
import { badge } from "./icons.js";
import { moment } from "./zone.js";

export function drawTimeline(list, transitions) {
  const items = transitions.map((transition, at) => itemOf(transition, transitions[at + 1]));
  list.replaceChildren(...items.reverse());
}

function itemOf({ at, status, error }, next) {
  const begun = Date.parse(at);
  const lasted = next ? `for ${duration((Date.parse(next.at) - begun) / 1_000)}` : "until now";
  return h(
    "li",
    {},
    h("time", { datetime: at }, moment(begun)),
    h("div", { class: "step" }, badge(status), h("span", { class: "lasted" }, lasted)),
    error ? h("div", { class: "copied" }, h("p", { class: "step-reason" }, error), copyButton("the error", () => error)) : null,
  );
}
