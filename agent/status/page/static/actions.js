/** What can be done with links, what it will do, and doing it to many of them. */

import { h } from "./dom.js";
import { exact, plural, rate } from "./format.js";
import { stateOf } from "./states.js";

export const ACTIONS = {
  restart: {
    label: "Restart",
    effect: "It settles the messages in flight, reconnects and continues. Its upstream queue and the messages in it stay.",
    effects: "Each settles its messages in flight, reconnects and continues. Upstream queues and the messages in them stay.",
  },
  pause: {
    label: "Pause",
    effect: "The link consumes no messages until you resume it. They wait upstream, up to the limits of the queue.",
    effects: "They consume no messages until you resume them. Messages wait upstream, up to the limits of the queues.",
  },
  resume: {
    label: "Resume",
    effect: "The link connects and consumes the messages that waited upstream.",
    effects: "They connect and consume the messages that waited upstream.",
  },
};

/** What can be done with a cause of trouble; its rows are the cause itself. */
export const OF_CAUSES = {
  ack: {
    label: "Acknowledge",
    effect: "It comes behind causes that nobody knows of yet, until it is over or stops more links. Links and alerts stay as they are.",
  },
  unack: { label: "Take back acknowledgement", title: "Take back acknowledgement of", effect: "It comes before others again." },
};

/** The one that has an effect: on a cause that somebody has acknowledged, taking that back. */
export const offeredFor = ({ acknowledged }) => (acknowledged ? "unack" : "ack");

/** Method, path and body of what the agent is asked for; `seconds` is 0 where only the end of the trouble ends it. */
export function requestFor(action, { id }, reason, seconds) {
  const path = `/api/causes/${encodeURIComponent(id)}/ack`;
  if (action === "unack") return ["DELETE", path, null];
  return ["POST", path, { ...(reason && { reason }), ...(seconds > 0 && { for: seconds }) }];
}

const AT_ONCE = 4;
const OFFERED = {
  paused: ["resume"],
  standby: ["pause"],
  terminated: ["restart"],
  stopping: [],
  removing: [],
};

/** The actions that have an effect in this state. */
export const offered = (status) => OFFERED[status] ?? ["restart", "pause"];

/** The links that the action has an effect on, and the number of those that it has none on, by state. */
export function split(action, rows) {
  if (action in OF_CAUSES) return { meant: rows, skipped: new Map() };
  const meant = rows.filter((row) => offered(row.view.status).includes(action));
  const skipped = new Map();
  for (const row of rows) {
    const { status } = row.view;
    if (!offered(status).includes(action)) skipped.set(status, (skipped.get(status) ?? 0) + 1);
  }
  return { meant, skipped };
}

/** In sentences: what happens to which of these links. */
export function describe(action, rows, { meant, skipped }, now) {
  const isAny = meant.length > 0;
  const lines = [isAny ? ACTIONS[action].effects : "It has no effect on any of them."];
  if (isAny) lines.push(`${plural(meant.length, "link")}: ${countStates(meant)}.`);
  const flow = meant.reduce((sum, row) => sum + (row.view.rate ?? 0), 0);
  if (flow > 0 && action !== "resume") {
    lines.push(`They forward ${rate(flow)} now${action === "pause" ? "; these messages wait upstream from then on" : ""}.`);
  }
  const waiting = meant.reduce((sum, row) => sum + (row.view.backlog ?? row.view.backlog_last ?? 0), 0);
  if (waiting > 0 && action === "resume") lines.push(`${plural(waiting, "message")} wait for them.`);
  if (skipped.size > 0) {
    const left = [...skipped].map(([status, number]) => `${exact(number)} ${stateOf(status).label.toLowerCase()}`);
    lines.push(`Left as they are: ${left.join(", ")}.`);
  }
  return lines;
}

function countStates(rows) {
  const found = new Map();
  for (const { shown } of rows) found.set(shown, (found.get(shown) ?? 0) + 1);
  return [...found].map(([status, number]) => `${exact(number)} ${stateOf(status).label.toLowerCase()}`).join(", ");
}

/** A few at a time; `onProgress(done)` after each. Returns the errors, by link; without the token it stops. */
export async function performAll(rows, perform, onProgress) {
  const left = [...rows];
  const errors = new Map();
  let done = 0;
  const work = async () => {
    for (let row = left.shift(); row; row = left.shift()) {
      try {
        await perform(row);
      } catch (error) {
        if (error.status === undefined) {
          left.length = 0; // no token, or no agent: the others would fail alike
          throw error;
        }
        errors.set(row, error.message);
      }
      done += 1;
      onProgress(done);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return errors;
}

/** Buttons for links that are only known when one is pressed; `onAct(action, rows, of)` asks for the confirmation. */
export function actionButtons(onAct, rowsOf, of) {
  const buttons = Object.entries(ACTIONS).map(([action, { label }]) =>
    h("button", { type: "button", "data-action": action, onclick: () => onAct(action, rowsOf(), of) }, `${label} …`),
  );
  return h("div", { class: "actions" }, ...buttons);
}

/** Hides those without effect on any of the links. */
export function showActions(node, rows) {
  for (const button of node.children) {
    button.hidden = !rows.some((row) => offered(row.view.status).includes(button.dataset.action));
  }
}
