/** Shows whether the page is live, and since when it is not. */

import { byId, set, text } from "./dom.js";
import { duration } from "./format.js";
import { clockTime, zoneName } from "./zone.js";

export class Connection {
  #since = null;
  #heard = false;

  up() {
    this.#since = null;
    this.#heard = true;
    this.#show("live", "Live");
    byId("unreachable").hidden = true;
  }

  down(reason) {
    this.#since ??= Date.now();
    this.#show("away", "Not connected");
    const since = `The agent has not answered since ${clockTime(this.#since)} ${zoneName(this.#since)}: ${reason}.`;
    const values = this.#heard ? " The page shows the state of that time." : "";
    text(byId("unreachable-text"), `${since}${values} Reconnecting automatically.`);
    byId("unreachable").hidden = false;
  }

  /** How long it has been away; separate from the text that is read aloud. */
  tick() {
    if (this.#since !== null) text(byId("unreachable-age"), duration((Date.now() - this.#since) / 1_000));
  }

  #show(state, label) {
    set(document.body, "data-connection", state);
    text(byId("connection"), label);
  }
}
