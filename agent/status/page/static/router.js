/** The current view, in the address after `#`: users can share it, and an alert can point to a link. */

export const SORTS = ["state", "name", "path", "rate", "lag", "forwarded", "in_flight", "reconnects", "owner"];
const FILTERS = ["q", "state", "from", "sort", "range", "open"];
const VIEWS = ["topology", "events", "fleet"];

/** `#/links?q=…&state=…&from=…&sort=-lag`, `#/links/ID?range=1h`, `#/topology`, `#/events?q=…&state=…`, `#/fleet`. */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [view, id] = path.split("/", 2);
  const given = new URLSearchParams(query);
  const filters = Object.fromEntries(FILTERS.map((name) => [name, given.get(name) ?? ""]));
  if (VIEWS.includes(view)) return { view, ...filters };
  return id ? { view: "link", id: decode(id), ...filters } : { view: "links", ...filters };
}

export function format({ view = "links", id = "", ...filters }) {
  const query = new URLSearchParams(FILTERS.map((name) => [name, filters[name] ?? ""]).filter(([, value]) => value));
  const path = view === "link" ? `links/${encodeURIComponent(id)}` : view;
  return `#/${path}${query.size > 0 ? `?${query}` : ""}`;
}

export function sortOf(route) {
  const key = route.sort.replace(/^-/, "");
  if (!SORTS.includes(key)) return { key: "state", descending: false };
  return { key, descending: route.sort.startsWith("-") };
}

export const statesOf = (route) => new Set(route.state.split(",").filter(Boolean));

/** A hand-written address may be malformed. */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
