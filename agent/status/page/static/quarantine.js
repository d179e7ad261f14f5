/** Messages put into quarantine since the agent started: how many of all links and of each, and what to do. */

import { byId, h, text } from "./dom.js";
import { exact, plural } from "./format.js";
import { format } from "./router.js";

const NAMED = 10;

/** The links with quarantined messages, most first. */
export const withQuarantined = (rows) =>
  [...rows].filter((row) => row.view.quarantined > 0).sort((a, b) => b.view.quarantined - a.view.quarantined);

export const commandFor = (id) => `federation-agent quarantine list -c FILE --link ${id}`;

/** As Python's `shlex.quote`. */
const quote = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);

/** The command that takes them elsewhere; a shovel has no upstream. */
export const moveFor = ({ id, view: { vhost, upstream } }) => {
  const source = upstream ? quote(`${vhost}/${upstream}`) : "URI";
  const match = `--match x-quarantine-link=${id} --to-queue QUEUE`;
  return `federation-agent move -c FILE --from ${source} --queue 'federation-agent: quarantine' ${match}`;
};

export class Quarantine {
  #shown = "";

  show(rows) {
    const found = withQuarantined(rows);
    byId("quarantine").hidden = found.length === 0;
    if (found.length === 0) return;
    const sum = found.reduce((total, row) => total + row.view.quarantined, 0);
    text(byId("quarantine-sum"), `${plural(sum, "message")} of ${plural(found.length, "link")} since this agent started`);
    const key = JSON.stringify(found.slice(0, NAMED).map((row) => [row.id, row.name, row.view.quarantined]));
    if (key === this.#shown) return;
    this.#shown = key;
    const items = found.slice(0, NAMED).map((row) => {
      const href = format({ view: "link", id: row.id });
      return h("li", {}, h("a", { href }, row.name), ` ${exact(row.view.quarantined)}`);
    });
    if (found.length > NAMED) items.push(h("li", {}, `and ${plural(found.length - NAMED, "more link")}`));
    byId("quarantine-links").replaceChildren(...items);
  }
}

/** On a link's own page. */
export function showQuarantined(row) {
  const count = row.view.quarantined;
  byId("detail-quarantine").hidden = !count;
  if (!count) return;
  text(byId("detail-quarantine-count"), `${plural(count, "message")} in quarantine since this agent started.`);
  text(byId("detail-quarantine-command"), commandFor(row.id));
  text(byId("detail-quarantine-move"), moveFor(row));
}
