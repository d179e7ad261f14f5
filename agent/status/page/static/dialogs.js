/** Asks before anything is done to a link, and for the token where the agent wants one. */

import { byId, text } from "./dom.js";

const SENDABLE = /^[!-~]+$/; // a browser sends nothing else in a header, and says that the agent is away

const ACTIONS = {
  restart: {
    label: "Restart",
    effect: "It settles what is in flight, connects anew and goes on. Its upstream queue and what waits in it stay.",
  },
  pause: {
    label: "Pause",
    effect: "It takes no more messages until somebody resumes it. They wait upstream, up to the limits of the queue.",
  },
  resume: { label: "Resume", effect: "It connects and takes what has waited upstream." },
};

/** `perform()` is awaited with the dialog open; what goes wrong is said in it. */
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
    if (document.activeElement === document.body) byId("detail-title").focus(); // what opened it is no longer there
  };
  dialog.showModal();
}

/** Answers what was typed, or null where the dialog was left. */
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
        text(byId("token-error"), "No token has such letters. Copy it again.");
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
