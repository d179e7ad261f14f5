/** Sends requests to the agent. The user is asked for a token once; it is kept until this tab is closed. */

const TOKEN = "federation-agent token";

export class AnswerError extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

/** The user gave no token. */
export class NoTokenError extends Error {}

export class Api {
  #askToken;
  #asking = null;
  #skew = 0;

  /** `askToken(wasRefused)` returns a token, or null if the user gives none. */
  constructor(askToken) {
    this.#askToken = askToken;
  }

  get hasToken() {
    return sessionStorage.getItem(TOKEN) !== null;
  }

  forgetToken() {
    sessionStorage.removeItem(TOKEN);
  }

  /** The agent's time: ages are calculated with the clock that wrote the timestamps. */
  now() {
    return Date.now() + this.#skew;
  }

  async get(path) {
    return (await this.#request(path)).json();
  }

  async send(method, path, value = null) {
    const headers = { "Content-Type": "application/json" };
    const body = value === null ? undefined : JSON.stringify(value);
    return (await this.#request(path, { method, headers, body })).json();
  }

  async open(path, signal) {
    return this.#request(path, { signal, headers: { Accept: "text/event-stream" } });
  }

  async #request(path, options = {}) {
    for (;;) {
      const token = sessionStorage.getItem(TOKEN);
      const headers = { ...options.headers, ...(token === null ? {} : { Authorization: `Bearer ${token}` }) };
      const response = await fetch(path, { cache: "no-store", ...options, headers });
      this.#keepTime(response);
      if (response.ok) return response;
      if (response.status !== 401) throw new AnswerError(response.status, await reasonOf(response));
      if (token === sessionStorage.getItem(TOKEN)) await this.#renewToken(token !== null);
    }
  }

  /** Several requests may need the token at the same time; the user is asked once. */
  async #renewToken(wasRefused) {
    this.#asking ??= this.#askToken(wasRefused).finally(() => (this.#asking = null));
    const token = await this.#asking;
    if (token === null) throw new NoTokenError("the agent needs a token");
    sessionStorage.setItem(TOKEN, token);
  }

  #keepTime(response) {
    const told = Date.parse(response.headers.get("Date"));
    if (Number.isNaN(told)) return;
    const skew = told + 500 - Date.now(); // the header has whole seconds
    this.#skew = Math.abs(skew) < 2_000 ? 0 : skew;
  }
}

async function reasonOf(response) {
  try {
    return (await response.json()).error;
  } catch {
    return `the agent answered ${response.status}`;
  }
}
