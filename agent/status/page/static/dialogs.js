/** Confirms actions on links, and asks for the token if the agent needs one. */

import { ACTIONS, OF_CAUSES, describe, performAll, split } from "./actions.js";
import { byId, h, text } from "./dom.js";
import { exact, plural } from "./format.js";

const SENDABLE = /^[!-~]+$/; // a browser can send nothing else in a header, and would report that the agent is away

const NAMED = 10;

/** `perform(row, reason, seconds)` is awaited with the dialog open, for each link; the dialog shows its progress and errors. */
export function confirmAction(action, rows, { of = "", now, perform }) {
  const dialog = byId("confirm");
  const go = byId("confirm-go");
  const found = split(action, rows);
  const isOne = rows.length === 1;
  const { label, effect, title = label } = ACTIONS[action] ?? OF_CAUSES[action];
  const what = isOne ? rows[0].name : `${plural(found.meant.length, "link")}${of && ` ${of}`}`;
  text(byId("confirm-title"), `${title} ${what}?`);
  const lines = isOne ? [effect] : describe(action, rows, found, now);
  byId("confirm-effect").replaceChildren(...lines.map((line) => h("p", {}, line)));
  byId("confirm-names").replaceChildren(...(isOne ? [] : namesOf(found.meant)));
  byId("confirm-why").hidden = action !== "pause" && action !== "ack";
  byId("confirm-how-long").hidden = action !== "ack";
  byId("confirm-for").value = "0";
  byId("confirm-reason").value = "";
  text(byId("confirm-error"), "");
  text(byId("confirm-progress"), "");
  text(go, isOne ? label : `${label} ${plural(found.meant.length, "link")}`);
  go.disabled = found.meant.length === 0;
  let meant = found.meant;
  byId("confirm-form").onsubmit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    text(byId("confirm-error"), "");
    const done = new Set();
    const doing = async (row) => {
      await perform(row, byId("confirm-reason").value.trim(), Number(byId("confirm-for").value));
      done.add(row);
    };
    try {
      const errors = await performAll(meant, doing, (number) =>
        text(byId("confirm-progress"), isOne ? "" : `${exact(number)} of ${exact(meant.length)} done`),
      );
      if (errors.size === 0) dialog.close();
      else text(byId("confirm-error"), notDone(errors, isOne));
    } catch (error) {
      const reason = error instanceof TypeError ? "the agent can't be reached" : error.message;
      text(byId("confirm-error"), `Not done: ${reason}.`);
    }
    meant = meant.filter((row) => !done.has(row));
    text(byId("confirm-progress"), "");
    go.disabled = meant.length === 0;
  };
  byId("confirm-cancel").onclick = () => dialog.close();
  dialog.onclose = () => {
    if (document.activeElement === document.body) focusTitle(); // the element that opened it is gone
  };
  dialog.showModal();
}

const focusTitle = () => [...document.querySelectorAll("main h1")].find((title) => title.offsetParent !== null)?.focus();

function namesOf(rows) {
  const names = rows.slice(0, NAMED).map((row) => h("li", {}, row.name));
  return rows.length > NAMED ? [...names, h("li", {}, `and ${plural(rows.length - NAMED, "more link")}`)] : names;
}

function notDone(errors, isOne) {
  const [[row, reason]] = errors;
  if (isOne) return `Not done: ${reason}.`;
  return `Not done for ${plural(errors.size, "link")}, such as ${row.name}: ${reason}.`;
}

/** Returns the entered token, or null if the dialog was cancelled. */
export function askToken(wasRefused) {
  const dialog = byId("token");
  const input = byId("token-input");
  text(byId("token-error"), wasRefused ? "The agent refused that token." : "");
  input.value = "";
  return new Promise((resolve) => {
    byId("token-form").onsubmit = (event) => {
      event.preventDefault();
      const token = input.value.trim();
      if (!SENDABLE.test(token)) {
        text(byId("token-error"), "A token can't contain these characters. Copy it again.");
        return;
      }
      dialog.onclose = null;
      input.value = "";
      dialog.close();
      resolve(token);
    };
    byId("token-cancel").onclick = () => dialog.close();
    dialog.onclose = () => resolve(null);
    dialog.showModal();
  });
}
