/** A rate's last two minutes in the space of a word. */

import { s, set } from "./dom.js";

const WIDTH = 64;
const HEIGHT = 20;
const SLOTS = 59;

export function sparkline() {
  return s(
    "svg",
    { class: "sparkline", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    s("path"),
  );
}

export const drawSparkline = (svg, rates) => set(svg.firstChild, "d", pathOf(rates));

/** New values enter at the right; an idle link is a line at the bottom. */
export function pathOf(rates) {
  const top = Math.max(1, ...rates);
  const step = WIDTH / (SLOTS - 1);
  const left = WIDTH - (rates.length - 1) * step;
  const points = rates.map(
    (rate, at) => `${(left + at * step).toFixed(1)} ${(HEIGHT - 1 - (rate / top) * (HEIGHT - 2)).toFixed(1)}`,
  );
  return points.length > 1 ? `M${points.join("L")}` : "";
}
