/** The standby: whether it is in step and why not, what a promotion would repeat, and the commands for it. */

import { advised } from "./copy.js";
import { byId, h, set, text } from "./dom.js";
import { NONE, duration, exact, plural } from "./format.js";
import { icon } from "./icons.js";
import { stateOf } from "./states.js";
import { moment } from "./zone.js";

/** The verdict with the state whose icon and colour it has, the reasons, numbers, doubts and what to do, in words. */
export function described(view) {
  const { of, in_step: isInStep, promoted } = view;
  if (promoted !== null) {
    const at = Number.isNaN(Date.parse(promoted)) ? promoted : moment(Date.parse(promoted));
    const verdict = `Promoted${at && ` at ${at}`}: it doesn't follow ${of} any more`;
    return { state: "standby", verdict, why: [], figures: [], inDoubt: "", doubts: [], advice: AFTER };
  }
  return {
    state: isInStep ? "running" : "stalled",
    verdict: isInStep ? `In step with ${of}` : `Not in step with ${of}`,
    why: view.why_not,
    figures: figuresOf(view),
    inDoubt: view.in_doubt ? `${plural(view.in_doubt, "queue")} in doubt` : "",
    doubts: view.first_in_doubt.map(({ vhost, queue, doubts }) => [`${vhost}/${queue}`, doubts.join("; ")]),
    advice: BEFORE,
  };
}

const BEFORE = [
  "All queues: `federation-agent standby status -c FILE`",
  "What a promotion would do: `federation-agent standby promote -c FILE --switchover --dry-run`",
  "If the source is gone: `federation-agent standby promote -c FILE --failover --dry-run`",
];
const AFTER = ["For a standby the other way: `federation-agent standby reverse -c FILE --write reversed.yaml`"];

function figuresOf({ lag_seconds: lag, waiting, repeats_at_most: repeats, not_here: missing, links }) {
  return [
    ["lag", lag === null ? NONE : lag < 1 ? "< 1 s" : duration(lag)],
    ["links", exact(links)],
    ["waiting in them", exact(waiting)],
    ["repeated at most by a promotion now", exact(repeats)],
    ...(missing ? [["or more of the source's messages aren't here", exact(missing)]] : []),
  ];
}

export class Standby {
  #shown = "";

  /** `view` is null where this agent keeps no standby. */
  show(view) {
    byId("standby").hidden = !view;
    if (!view) return;
    const found = described(view);
    const key = JSON.stringify(found);
    if (key === this.#shown) return;
    this.#shown = key;
    set(byId("standby-verdict"), "data-group", stateOf(found.state).group);
    byId("standby-verdict").replaceChildren(icon(found.state), h("span", {}, found.verdict));
    byId("standby-why").replaceChildren(...found.why.map((reason) => h("li", {}, reason)));
    byId("standby-figures").replaceChildren(...found.figures.map(([name, number]) => h("div", {}, h("dt", {}, name), h("dd", {}, number))));
    byId("standby-doubts").hidden = !found.inDoubt;
    text(byId("standby-in-doubt"), found.inDoubt);
    byId("standby-doubt-list").replaceChildren(...found.doubts.map(([queue, doubt]) => h("li", {}, h("b", {}, queue), ` ${doubt}`)));
    byId("standby-advice").replaceChildren(...found.advice.map((line) => h("li", {}, ...advised(line))));
  }
}
