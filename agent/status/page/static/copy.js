/** Buttons that copy a text: an id, an address, an error, a command. */

import { h, s, set } from "./dom.js";

const SHEETS = "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3";
const CHECK = "M3 8.5l3.5 3.5L13 4.5";
const SHOWN = 1_500; // ms

/** `what` names the text for screen readers, `read` returns it when the button is pressed. */
export function copyButton(what, read) {
  const shape = s("path", { d: SHEETS });
  const icon = s("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, shape);
  const label = `Copy ${what}`;
  const button = h("button", { type: "button", class: "copy", "aria-label": label, title: label }, icon);
  button.addEventListener("click", async () => {
    const isDone = await copied(read());
    set(shape, "d", isDone ? CHECK : SHEETS);
    set(button, "aria-label", isDone ? "Copied" : `Can't copy ${what}: select it and copy it`);
    set(button, "title", button.getAttribute("aria-label"));
    setTimeout(() => {
      set(shape, "d", SHEETS);
      for (const name of ["aria-label", "title"]) set(button, name, label);
    }, SHOWN);
  });
  return button;
}

/** What advice consists of: what is between backticks is code, and code of several words is a command. */
export const piecesOf = (words) =>
  words.split("`").map((part, at) => {
    const isCode = at % 2 === 1;
    return { part, isCode, isCommand: isCode && part.includes(" ") };
  });

/** Advice with its code; whole commands can be copied. */
export const advised = (words) =>
  piecesOf(words).flatMap(({ part, isCode, isCommand }) => {
    if (!isCode) return [part];
    const code = h("code", {}, part);
    return isCommand ? [code, copyButton("the command", () => part)] : [code];
  });

/** Browsers have a clipboard for pages on loopback or behind TLS only; elsewhere a selection is copied. */
async function copied(words) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(words);
      return true;
    } catch {
      // Not allowed: the selection may still be.
    }
  }
  const field = h("textarea", { class: "unseen", "aria-hidden": "true", tabindex: -1 });
  field.value = words;
  const focused = document.activeElement;
  (focused?.closest("dialog") ?? document.body).append(field);
  field.select();
  const isDone = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return isDone;
}
