/** Times of day in the zone that the user chose: that of the browser, or UTC. */

import { byId, set, text } from "./dom.js";

const KEY = "federation-agent zone";

const formatsOf = (timeZone) => ({
  moment: new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium", timeZone }),
  seconds: new Intl.DateTimeFormat("sv-SE", { timeStyle: "medium", timeZone }),
  minutes: new Intl.DateTimeFormat("sv-SE", { timeStyle: "short", timeZone }),
});
const FORMATS = { local: formatsOf(undefined), utc: formatsOf("UTC") };
const { timeZone } = new Intl.DateTimeFormat().resolvedOptions();

let chosen = "local";

/** `utc`, or `local` for that of the browser. */
export function choose(zone) {
  chosen = zone;
}

/** `2026-11-23 04:28:33` */
export const moment = (time) => FORMATS[chosen].moment.format(time);

/** `04:28:33` */
export const clockTime = (time) => FORMATS[chosen].seconds.format(time);

/** `04:28` */
export const clockMinutes = (time) => FORMATS[chosen].minutes.format(time);

/** A moment with its zone: `2026-11-23 04:28:33 UTC+1`. */
export const zoned = (time) => `${moment(time)} ${zoneName(time)}`;

/** `UTC`, `UTC+1`, `UTC-3:30`, as it is at that time. */
export function zoneName(time) {
  const minutes = offset(time) / 60_000;
  if (minutes === 0) return "UTC";
  const rest = Math.abs(minutes) % 60;
  const hours = Math.floor(Math.abs(minutes) / 60);
  return `UTC${minutes < 0 ? "-" : "+"}${hours}${rest ? `:${String(rest).padStart(2, "0")}` : ""}`;
}

/** How far the zone is ahead of UTC, in ms. */
export const offset = (time) => (chosen === "utc" ? 0 : -new Date(time).getTimezoneOffset() * 60_000);

/** The button that shows the zone and changes to UTC and back; `onChange` draws everything again. */
export function zoneSwitch(onChange) {
  choose(localStorage.getItem(KEY) === "utc" ? "utc" : "local");
  const button = byId("zone");
  const show = () => {
    const now = Date.now();
    const other = chosen === "utc" ? `those of ${timeZone}` : "UTC";
    text(button, `Times: ${zoneName(now)}`);
    set(button, "title", `Times are ${chosen === "utc" ? "UTC" : `those of ${timeZone}`}; change to ${other}`);
    set(button, "aria-pressed", String(chosen === "utc"));
  };
  button.addEventListener("click", () => {
    choose(chosen === "utc" ? "local" : "utc");
    localStorage.setItem(KEY, chosen);
    show();
    onChange();
  });
  show();
}
