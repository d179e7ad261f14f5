/** Confirms actions on a link, and asks for the token if the agent needs one. */

import { byId, text } from "./dom.js";

const SENDABLE = /^[!-~]+$/; // a browser can send nothing else in a header, and would report that the agent is away

const ACTIONS = {
  restart: {
    label: "Restart",
    effect: "It settles the messages in flight, reconnects and continues. Its upstream queue and the messages in it stay.",
  },
  pause: {
    label: "Pause",
    effect: "The link consumes no messages until you resume it. They wait upstream, up to the limits of the queue.",
  },
  resume: { label: "Resume", effect: "The link connects and consumes the messages that waited upstream." },
};

/** `perform()` is awaited with the dialog open; the dialog shows its error. */
export function confirmAction(action, name, perform) {
  const dialog = byId("confirm");
  const go = byId("confirm-go");
  text(byId("confirm-title"), `${ACTIONS[action].label} ${name}?`);
  text(byId("confirm-effect"), ACTIONS[action].effect);
  text(byId("confirm-error"), "");
  text(go, ACTIONS[action].label);
  go.disabled = false;
  go.onclick = async () => {
    go.disabled = true;
    try {
      await perform();
      dialog.close();
    } catch (error) {
      const reason = error instanceof TypeError ? "the agent can't be reached" : error.message;
      text(byId("confirm-error"), `Not done: ${reason}.`);
      go.disabled = false;
    }
  };
  byId("confirm-cancel").onclick = () => dialog.close();
  dialog.onclose = () => {
    if (document.activeElement === document.body) byId("detail-title").focus(); // the element that opened it is gone
  };
  dialog.showModal();
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
