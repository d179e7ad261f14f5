/** Follows the agent's events while the page is open, and reports when it can't. */

import { NoTokenError } from "./api.js";

const PATIENCE = 25_000; // ms; the agent sends an event or a comment at least every 15 s
const PAUSES = [500, 1_000, 2_000, 3_000, 5_000];

/** Parses events from text that arrives in pieces; fetch is used because EventSource gives no reasons. */
export class EventText {
  #rest = "";

  *take(piece) {
    this.#rest += piece;
    let begin = 0;
    let end = this.#rest.indexOf("\n\n");
    for (; end >= 0; end = this.#rest.indexOf("\n\n", begin)) {
      const event = eventOf(this.#rest.slice(begin, end));
      begin = end + 2;
      if (event) yield event;
    }
    this.#rest = this.#rest.slice(begin);
  }
}

function eventOf(block) {
  let type = "message";
  const data = [];
  for (const line of block.split("\n")) {
    const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line.replace(/\r$/, ""));
    if (field === "event") type = value;
    else if (field === "data") data.push(value);
  }
  return data.length > 0 ? { type, data: JSON.parse(data.join("\n")) } : null;
}

/** Events: `up`, `down` (detail: the reason), `event` (detail: type and data). */
export class Feed extends EventTarget {
  #api;
  #wake = () => {};

  constructor(api) {
    super();
    this.#api = api;
    for (const name of ["online", "pageshow"]) addEventListener(name, () => this.retry());
  }

  /** Reconnects at once instead of waiting. */
  retry() {
    this.#wake();
  }

  async run() {
    for (let failures = 0; ; failures += 1) {
      try {
        await this.#follow(() => (failures = 0));
      } catch (error) {
        this.#tell("down", reasonOf(error));
        if (error instanceof NoTokenError) await this.#pause(Infinity);
      }
      await this.#pause(PAUSES[Math.min(failures, PAUSES.length - 1)]);
    }
  }

  async #follow(onUp) {
    const silence = new AbortController();
    let timer = setTimeout(() => silence.abort(), PATIENCE);
    try {
      const response = await this.#api.open("/api/events", silence.signal);
      const events = new EventText();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      this.#tell("up");
      onUp();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) throw new Error("it closed the connection");
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), PATIENCE);
        for (const event of events.take(value)) this.#tell("event", event);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  #pause(milliseconds) {
    return new Promise((resolve) => {
      const timer = milliseconds < Infinity ? setTimeout(resolve, milliseconds) : 0;
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #tell(type, detail = null) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

function reasonOf(error) {
  if (error.name === "AbortError") return "it sent nothing for too long";
  if (error instanceof TypeError) return "it can't be reached"; // the messages of fetch differ between browsers
  return error.message;
}
