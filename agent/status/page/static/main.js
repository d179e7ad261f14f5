/** Assembles the page: the feed writes the store, the address selects the view, views show the store. */

import { About } from "./about.js";
import { requestFor } from "./actions.js";
import { Announcer } from "./announce.js";
import { Api } from "./api.js";
import { Attention, GONE, headOf } from "./attention.js";
import { Causes } from "./causes.js";
import { Connection } from "./connection.js";
import { Detail } from "./detail.js";
import { askToken, confirmAction } from "./dialogs.js";
import { byId, set, text } from "./dom.js";
import { Events, statesIn } from "./events.js";
import { Feed } from "./feed.js";
import { Fleet } from "./fleet.js";
import { isLively, matching, ordered, rank } from "./filter.js";
import { exact, plural } from "./format.js";
import { format, parse, sortOf } from "./router.js";
import { Move } from "./move.js";
import { Quarantine } from "./quarantine.js";
import { Selection } from "./selection.js";
import { Standby } from "./standby.js";
import { Store, totals, wanting } from "./store.js";
import { Summary } from "./summary.js";
import { Table } from "./table.js";
import { Topology } from "./topology.js";
import { zoneSwitch } from "./zone.js";

const TICK = 1_000; // ms
const SETTLED = 1_000;
const PATIENCE = 3_000; // with an agent that lists its links and is slow to say what is wrong with them
const TITLES = { links: "links-title", events: "events-title", topology: "topology-title", fleet: "fleet-title", link: "detail-title" };
const SECTIONS = { links: "view-links", events: "view-events", topology: "view-topology", fleet: "view-fleet", link: "view-link" };

class Page {
  #api = new Api(askToken);
  #store = new Store();
  #feed = new Feed(this.#api);
  #connection = new Connection();
  #announcer = new Announcer(byId("announcement"));
  #about = new About(this.#api, this.#store);
  #summary = new Summary();
  #standby = new Standby();
  #move = new Move();
  #quarantine = new Quarantine();
  #attention = new Attention(
    (...asked) => this.#ask(...asked),
    (action, cause) => this.#acknowledge(action, cause),
  );
  #selection = new Selection((action, rows) => this.#ask(action, rows, this.#ofThese(rows)));
  #causes = new Causes(this.#api);
  #events = new Events(this.#api, () => this.#draw());
  #fleet = new Fleet(this.#api, () => this.#draw());
  #table = new Table({ onRelease: () => this.#draw({ reorder: true }), selection: this.#selection });
  #topology = new Topology(() => this.#draw());
  #detail = new Detail({
    load: (id, range) => this.#api.get(`/api/links/${encodeURIComponent(id)}?range=${range}`),
    act: (action, row) => this.#ask(action, [row]),
  });
  #route = parse(location.hash);
  #drawing = 0;
  #reorder = true;
  #order = [];
  #orderedBy = "";
  #ranks = null;
  #isRead = false;
  #isComplete = false; // or there was no more patience
  #hasTurned = false;
  #scrolled = 0;
  #telling = 0;
  #isEntitling = false;

  start() {
    this.#listen();
    this.#turn();
    this.#feed.run();
    setInterval(() => this.#tick(), TICK);
  }

  #listen() {
    this.#feed.addEventListener("up", () => this.#connected());
    this.#feed.addEventListener("down", ({ detail }) => this.#lost(detail));
    this.#feed.addEventListener("event", ({ detail }) => this.#take(detail));
    this.#store.addEventListener("members", () => this.#regroup());
    this.#store.addEventListener("links", () => {
      this.#causes.soon();
      this.#draw({ reorder: true });
    });
    this.#store.addEventListener("samples", () => this.#draw({ reorder: isLively(sortOf(this.#route).key) }));
    this.#store.addEventListener("about", () => {
      this.#entitle();
      this.#draw();
    });
    this.#store.addEventListener("moved", ({ detail }) => this.#moved(detail));
    this.#selection.addEventListener("change", () => this.#draw());
    this.#attention.onToggle = () => this.#draw();
    this.#causes.addEventListener("change", () => this.#draw());
    addEventListener("hashchange", () => this.#turn());
    byId("search").addEventListener("input", () => this.#search());
    byId("filter").addEventListener("submit", (event) => event.preventDefault());
    byId("event-search").addEventListener("input", ({ target }) => this.#filterEvents({ q: target.value }));
    byId("event-filter").addEventListener("submit", (event) => event.preventDefault());
    byId("event-states").addEventListener("change", ({ target }) =>
      this.#filterEvents({ state: target.value === "" ? "" : statesIn(target.value).join(",") }),
    );
    byId("sort").addEventListener("change", ({ target }) => this.#sort(target.value));
    byId("retry").addEventListener("click", () => this.#feed.retry());
    byId("skip").addEventListener("click", (event) => this.#skip(event));
    zoneSwitch(() => this.#redraw());
    byId("forget").addEventListener("click", () => this.#forget());
  }

  /** `of` says which links these are. */
  #ask(action, rows, of = "") {
    const perform = (row, reason) =>
      this.#api.send("POST", `/api/links/${encodeURIComponent(row.id)}/${action}`, reason ? { reason } : null);
    confirmAction(action, rows, { of, now: performance.now(), perform });
  }

  #acknowledge(action, cause) {
    const perform = async (_, reason, seconds) => {
      await this.#api.send(...requestFor(action, cause, reason, seconds));
      this.#causes.soon();
    };
    confirmAction(action, [{ name: headOf(cause) }], { now: performance.now(), perform });
  }

  /** Where links come from one upstream, its name; otherwise that of this cluster. */
  #ofThese(rows) {
    const sources = new Set(rows.map((row) => row.source));
    if (sources.size === 1) return `from ${rows[0].source}`;
    return this.#store.about.cluster ? `of ${this.#store.about.cluster}` : "";
  }

  #connected() {
    this.#connection.up();
    this.#complete();
    this.#events.forget();
    if (this.#route.view === "link") this.#detail.refresh();
    if (this.#route.view === "events") this.#events.soon();
    byId("forget").hidden = !this.#api.hasToken;
  }

  /** Links are shown once what stands above them is known, too: nothing that comes later may push them down. */
  async #complete() {
    const patience = new Promise((resolve) => setTimeout(resolve, PATIENCE));
    await Promise.race([Promise.all([this.#about.read(), this.#causes.read()]), patience]);
    this.#isComplete = true;
    this.#draw();
  }

  #lost(reason) {
    this.#connection.down(reason);
    this.#entitle();
  }

  #take({ type, data }) {
    const now = performance.now();
    if (type === "links") {
      this.#isRead = true;
      this.#store.replace(data, now);
    } else if (type === "link") this.#store.change(data, now);
    else if (type === "gone") this.#store.remove(data.id);
    else if (type === "samples") this.#store.sample(data, now);
  }

  #regroup() {
    this.#ranks = null;
    this.#causes.soon();
    if (this.#route.view === "events") this.#events.soon();
    this.#entitle();
    this.#draw({ reorder: true });
  }

  #moved(detail) {
    this.#announcer.moved(detail);
    this.#causes.soon();
    if (this.#route.view === "events") this.#events.soon();
    this.#entitle();
    if (this.#route.view === "link" && detail.row.id === this.#route.id) this.#detail.refresh();
  }

  #tick() {
    this.#connection.tick();
    if (document.body.dataset.connection !== "live") return; // the known state is that of the last contact
    if (this.#route.view === "link") this.#detail.tick(this.#store.get(this.#route.id), this.#api.now());
    if (this.#route.view === "events") this.#events.tick();
    if (this.#route.view === "fleet") this.#fleet.tick();
    this.#draw();
  }

  /** The address has changed. */
  #turn() {
    const before = this.#route;
    this.#route = parse(location.hash);
    if (before.view === "links" && this.#route.view !== "links") this.#scrolled = scrollY; // before it is hidden
    for (const [view, id] of Object.entries(SECTIONS)) byId(id).hidden = view !== this.#route.view;
    for (const view of ["links", "events", "topology", "fleet"]) {
      const current = this.#route.view === view || (view === "links" && this.#route.view === "link");
      set(byId(`nav-${view}`), "aria-current", current ? "page" : null);
    }
    if (byId("search").value !== this.#route.q) byId("search").value = this.#route.q;
    byId("sort").value = this.#route.sort || "state";
    if (this.#route.view === "links") byId("quarantine").after(byId("problems")); // below the incident
    else byId("main").prepend(byId("problems"));
    if (this.#route.view === "link") this.#detail.open(this.#route);
    if (this.#route.view === "links") this.#remember();
    if (this.#route.view === "events") this.#events.soon();
    if (this.#route.view === "fleet") this.#fleet.tick();
    this.#hasTurned = before.view !== this.#route.view;
    this.#draw({ reorder: true });
  }

  /** The focus moves with the view; the table keeps its scroll position. */
  #arrive() {
    this.#hasTurned = false;
    scrollTo(0, this.#route.view === "links" ? this.#scrolled : 0);
    byId(TITLES[this.#route.view]).focus({ preventScroll: true });
  }

  #search() {
    history.replaceState(null, "", format({ ...this.#route, view: "links", q: byId("search").value }));
    this.#route = parse(location.hash);
    this.#remember();
    this.#draw({ reorder: true });
    clearTimeout(this.#telling); // typing is announced once, not for each letter
    this.#telling = setTimeout(() => text(byId("announcement"), byId("found").textContent), SETTLED);
  }

  #filterEvents(filter) {
    history.replaceState(null, "", format({ ...this.#route, ...filter }));
    this.#route = parse(location.hash);
    this.#draw();
  }

  /** The link back leads to the list with its filter and order. */
  #remember() {
    set(byId("back"), "href", format(this.#route));
  }

  #sort(sort) {
    location.hash = format({ ...this.#route, sort });
  }

  #skip(event) {
    event.preventDefault();
    byId("main").focus();
  }

  /** Times are shown in another zone now. */
  #redraw() {
    this.#detail.redraw();
    this.#events.redraw();
    this.#draw();
  }

  #forget() {
    this.#api.forgetToken();
    location.reload();
  }

  /** Updates the title while the tab is in the background, when no frame is drawn. */
  #entitle() {
    if (this.#isEntitling) return; // thousands may change at once
    this.#isEntitling = true;
    queueMicrotask(() => {
      this.#isEntitling = false;
      const found = wanting([...this.#store.rows.values()]);
      const isAway = document.body.dataset.connection === "away";
      const told = isAway ? "(?) " : found > 0 ? `(${exact(found)}) ` : "";
      document.title = told + (this.#store.about.agent ?? "federation-agent");
    });
  }

  /** Draws at most once per frame, however much changes. */
  #draw({ reorder = false } = {}) {
    this.#reorder ||= reorder;
    this.#drawing ||= requestAnimationFrame(() => {
      this.#drawing = 0;
      this.#drawNow({ clock: this.#api.now(), now: performance.now() });
    });
  }

  #drawNow(moments) {
    const rows = this.#store.rows;
    const total = totals(rows.values(), moments.now);
    this.#about.show(this.#store.about);
    if (this.#route.view === "link") this.#drawLink(rows.get(this.#route.id), moments);
    else if (this.#route.view === "events") this.#events.show(this.#route, rows, moments.clock);
    else if (this.#route.view === "fleet") this.#fleet.show(moments.clock);
    else if (this.#route.view === "topology") this.#drawTopology([...rows.values()]);
    else this.#drawLinks(total, moments);
    if (this.#route.view !== "links") byId("selection").hidden = true;
    if (this.#hasTurned) this.#arrive();
  }

  #drawLink(row, moments) {
    byId("missing").hidden = !this.#isRead || Boolean(row);
    byId("present").hidden = !row;
    const isOfIt = ({ trouble, links }) => GONE.has(trouble) && links.includes(this.#route.id);
    const gone = this.#causes.found.causes.find(isOfIt);
    const others = gone && gone.links.length > 1 ? ` (and ${gone.links.length - 1} more like it)` : "";
    if (gone && !row) text(byId("missing-reason"), `${gone.error}${others}. ${gone.advice}`);
    this.#detail.show(row, this.#store.about, moments);
  }

  #drawTopology(rows) {
    byId("map-empty").hidden = !this.#isRead || rows.length > 0;
    byId("map-frame").hidden = rows.length === 0;
    if (rows.length > 0) this.#topology.show(rows, this.#store.about, this.#route);
  }

  #drawLinks(total, moments) {
    const isRead = this.#isRead && this.#isComplete;
    set(byId("view-links"), "data-reading", !isRead);
    byId("loading").hidden = isRead;
    if (!isRead) return;
    const rows = this.#store.rows;
    this.#summary.show(total, this.#route);
    this.#attention.show(this.#causes.found, rows);
    this.#standby.show(this.#store.about.standby);
    this.#move.show(this.#store.about.move);
    this.#quarantine.show(rows.values());
    this.#selection.show(rows, this.#route.from);
    if (this.#reorder) this.#arrange(moments.now);
    const isEmpty = rows.size === 0;
    byId("unready").hidden = !isEmpty || this.#store.about.ready !== false;
    byId("empty").hidden = !isEmpty || this.#store.about.ready === false;
    byId("figures").hidden = rows.size === 0;
    byId("no-match").hidden = rows.size === 0 || this.#order.length > 0;
    byId("table").hidden = this.#order.length === 0;
    byId("from").hidden = this.#route.from === "";
    text(byId("from-name"), this.#route.from);
    set(byId("from"), "href", format({ ...this.#route, from: "" }));
    const part = this.#order.length === rows.size ? "" : `${exact(this.#order.length)} of `;
    text(byId("found"), part + plural(rows.size, "link"));
    this.#table.show(this.#order, this.#route, moments);
  }

  /** The set of shown links is always current; their order is kept while the pointer is on one. */
  #arrange(now) {
    const found = matching(this.#store.rows.values(), this.#route);
    this.#ranks ??= rank(this.#store.rows.values());
    const wanted = ordered(found, this.#route, this.#ranks, now);
    const key = format(this.#route);
    if (this.#table.isHeld && key === this.#orderedBy) {
      const left = new Set(wanted);
      const kept = this.#order.filter((row) => left.delete(row));
      this.#order = [...kept, ...left];
      return;
    }
    this.#orderedBy = key;
    this.#order = wanted;
    this.#reorder = false;
  }
}

new Page().start();
