/** Which links are shown, in which order. */

import { statesOf, sortOf } from "./router.js";
import { stateOf } from "./states.js";

const collator = new Intl.Collator("en", { numeric: true });

/** Every word has to occur somewhere in a link's names, addresses or reason. */
export function matching(rows, route) {
  const words = route.q.toLowerCase().split(/\s+/).filter(Boolean);
  const states = statesOf(route);
  return [...rows].filter(
    (row) =>
      (states.size === 0 || states.has(row.shown)) &&
      (route.from === "" || row.source === route.from) &&
      words.every((word) => row.search.includes(word)),
  );
}

const NUMBERS = {
  rate: (row) => row.view.rate ?? 0,
  lag: (row) => row.view.backlog ?? -1,
  forwarded: (row) => row.view.forwarded,
  in_flight: (row) => row.view.in_flight,
  reconnects: (row) => row.view.reconnects,
};

const WORDS = {
  name: (row) => row.name,
  path: (row) => `${row.source}\n${row.remote}`,
  owner: (row) => row.view.owner ?? "",
};

/** Whether an order changes with every sample. */
export const isLively = (key) => key in NUMBERS;

/** As the command `links`: an incident comes before what never worked, or has not for long. */
function urgency({ view }) {
  if (view.incident) return 0;
  return stateOf(view.status).group === "degraded" ? 1 : 2;
}

/** Equal links keep the order of `rank`; `ranks` caches it, because comparing names is expensive. */
export function ordered(rows, route, ranks, now) {
  const { key, descending } = sortOf(route);
  const sign = descending ? -1 : 1;
  const byName = (one, other) => ranks.get(one.id) - ranks.get(other.id);
  if (key === "state") {
    return rows.sort(
      (one, other) =>
        sign * (urgency(one) - urgency(other) || one.severity - other.severity) || byName(one, other),
    );
  }
  if (key in NUMBERS) {
    const values = new Map(rows.map((row) => [row, NUMBERS[key](row, now)]));
    return rows.sort((one, other) => sign * (values.get(one) - values.get(other)) || byName(one, other));
  }
  const words = new Map(rows.map((row) => [row, WORDS[key](row)]));
  return rows.sort((one, other) => sign * collator.compare(words.get(one), words.get(other)) || byName(one, other));
}

/** By vhost, kind, name and upstream, as the command `links`. */
export function rank(rows) {
  const names = [...rows].map((row) => [row.id, `${row.view.vhost}\n${row.view.kind}\n${row.name}\n${row.view.upstream}`]);
  names.sort((one, other) => collator.compare(one[1], other[1]));
  return new Map(names.map(([id], at) => [id, at]));
}
