/** Numbers and times in a readable form. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const NONE = "–";

/** Exact below ten thousand, three digits above. */
export function count(value) {
  if (value === null || value === undefined) return NONE;
  return value < 10_000 ? whole.format(value) : compact.format(value);
}

export const exact = (value) => (value === null || value === undefined ? NONE : whole.format(value));

/** A backlog as the command line shows it: `~` one that was last known some time ago, `+` one that may be larger. */
export function waiting({ backlog, backlog_last: last, backlog_is_exact: isExact }) {
  if (backlog === null) return last === null ? NONE : `~${count(last)}`;
  return count(backlog) + (isExact === false ? "+" : "");
}

export function rate(perSecond) {
  if (perSecond === null) return NONE;
  if (perSecond === 0) return "0/s";
  return perSecond < 10 ? `${perSecond.toFixed(1)}/s` : `${count(Math.round(perSecond))}/s`;
}

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  let unit = 0;
  let left = value;
  for (; left >= 1024 && unit < UNITS.length - 1; unit += 1) left /= 1024;
  return `${unit === 0 || left >= 100 ? Math.round(left) : left.toFixed(1)} ${UNITS[unit]}`;
}

/** The two largest units at most: `3 d 4 h`, `12 min`, `8 s`. */
export function duration(seconds) {
  const left = Math.max(0, Math.floor(seconds));
  if (left < 60) return `${left} s`;
  if (left < 600) return pair(Math.floor(left / 60), "min", left % 60, "s");
  if (left < 3_600) return `${Math.floor(left / 60)} min`;
  if (left < 86_400) return pair(Math.floor(left / 3_600), "h", Math.floor((left % 3_600) / 60), "min");
  return pair(Math.floor(left / 86_400), "d", Math.floor((left % 86_400) / 3_600), "h");
}

const pair = (large, largeUnit, small, smallUnit) =>
  small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;

/** An age under a second is shown as `< 1 s`, because a healthy link has it; without an age nothing waits. */
export function age(seconds) {
  if (!seconds) return NONE;
  return seconds < 1 ? "< 1 s" : duration(seconds);
}

export const plural = (number, one, many = `${one}s`) => `${exact(number)} ${number === 1 ? one : many}`;
