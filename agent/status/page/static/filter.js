/** Which links are shown, in which order. */

import { statesOf, sortOf } from "./router.js";

const collator = new Intl.Collator("en", { numeric: true });

/** Every word has to occur somewhere in a link's names, addresses or reason. */
export function matching(rows, route) {
  const words = route.q.toLowerCase().split(/\s+/).filter(Boolean);
  const states = statesOf(route);
  return [...rows].filter(
    (row) =>
      (states.size === 0 || states.has(row.view.status)) &&
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

/** Equal links keep the order of their names; `ranks` caches it, because comparing names is expensive. */
export function ordered(rows, route, ranks, now) {
  const { key, descending } = sortOf(route);
  const sign = descending ? -1 : 1;
  const byName = (one, other) => ranks.get(one.id) - ranks.get(other.id);
  if (key === "state") {
    return rows.sort(
      (one, other) =>
        sign * (one.severity - other.severity) || (one.severity < 4 ? other.since - one.since : 0) || byName(one, other),
    );
  }
  if (key in NUMBERS) {
    const values = new Map(rows.map((row) => [row, NUMBERS[key](row, now)]));
    return rows.sort((one, other) => sign * (values.get(one) - values.get(other)) || byName(one, other));
  }
  const words = new Map(rows.map((row) => [row, WORDS[key](row)]));
  return rows.sort((one, other) => sign * collator.compare(words.get(one), words.get(other)) || byName(one, other));
}

export function rank(rows) {
  const names = [...rows].map((row) => [row.id, `${row.name}\n${row.view.vhost}\n${row.view.upstream}`]);
  names.sort((one, other) => collator.compare(one[1], other[1]));
  return new Map(names.map(([id], at) => [id, at]));
}
