/** A move, as `migrate run` makes it: how its links are and what waits. That it is done only `migrate status` can say. */

import { advised } from "./copy.js";
import { byId, text } from "./dom.js";
import { exact, plural } from "./format.js";

const ADVICE =
  "Whether all has moved says `federation-agent migrate status FILE`, with an administrator's rights at the source, which this " +
  "agent needn't have.";

/** `12 queues: 10 links run, 1 in another agent, 1 doesn't work`, and what waits and has arrived. */
export function described({ queues, running, elsewhere, not_working: broken, waiting, waiting_is_exact: isExact, forwarded }) {
  const links = [
    `${plural(running, "link runs", "links run")} here`,
    elsewhere && `${exact(elsewhere)} in another agent`,
    broken && `${exact(broken)} ${broken === 1 ? "doesn't" : "don't"} work or ${broken === 1 ? "is" : "are"} behind`,
  ];
  const wait = waiting === null ? "how many messages wait isn't known" : waitingAtSource(waiting, isExact);
  return {
    links: `${plural(queues, "queue")}: ${links.filter(Boolean).join(", ")}`,
    messages: `${wait[0].toUpperCase()}${wait.slice(1)}; ${plural(forwarded, "message has", "messages have")} arrived since this agent started`,
  };
}

const waitingAtSource = (number, isExact) => `${isExact ? "" : "at least "}${plural(number, "message waits", "messages wait")} at the source`;

export class Move {
  constructor() {
    byId("move-advice").replaceChildren(...advised(ADVICE));
  }

  /** `view` is null where this agent moves nothing. */
  show(view) {
    byId("move").hidden = !view;
    if (!view) return;
    const found = described(view);
    text(byId("move-title"), view.source ? `Move from ${view.source}` : "Move");
    text(byId("move-links"), found.links);
    text(byId("move-messages"), found.messages);
  }
}
