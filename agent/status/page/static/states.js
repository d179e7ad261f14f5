/** The states of a link: severity, shape for display without colour, and what one without trouble means. */

export const STATES = {
  invalid: {
    label: "Invalid",
    group: "down",
    severity: 0,
    shape: "M5.2 1h5.6L15 5.2v5.6L10.8 15H5.2L1 10.8V5.2ZM5.5 5.5l5 5m0-5-5 5",
  },
  backoff: {
    label: "Backoff",
    group: "down",
    severity: 1,
    shape: "M8 1.5 15 14H1ZM8 6v4m0 1.6v.8",
  },
  stalled: {
    label: "Stalled",
    group: "degraded",
    severity: 2,
    shape: "M3 1.5h10M3 14.5h10M4 1.5c0 4 4 5 4 6.5s-4 2.5-4 6.5m8-13c0 4-4 5-4 6.5s4 2.5 4 6.5",
  },
  blocked: {
    label: "Blocked",
    group: "degraded",
    severity: 3,
    shape: "M1.5 1.5h13v13h-13zM4.5 8h7",
  },
  starting: {
    label: "Starting",
    group: "busy",
    severity: 4,
    shape: "M8 1.5A6.5 6.5 0 1 1 1.5 8M8 4.5V8l2.5 2",
    meaning: "The link is connecting. The reason appears here if an attempt fails.",
  },
  removing: {
    label: "Removing",
    group: "off",
    severity: 5,
    shape: "M8 1.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13ZM5 8h6",
    meaning:
      "This link is no longer defined. Its queue upstream collects messages until it is removed, at the time " +
      "named in the reason. To keep it, define the link again: it continues where it was and loses no messages.",
  },
  stopping: {
    label: "Stopping",
    group: "off",
    severity: 6,
    shape: "M3 3h10v10H3z",
    meaning: "This link is no longer needed; it settles the messages in flight and ends.",
  },
  paused: {
    label: "Paused",
    group: "off",
    severity: 7,
    shape: "M5 2v12M11 2v12",
  },
  terminated: {
    label: "Finished",
    group: "off",
    severity: 8,
    shape: "M3 8.5l3 3 7-7M3 14h10",
    meaning: "It has moved all that its definition asks for. Restart runs it again.",
  },
  standby: {
    label: "Standby",
    group: "off",
    severity: 9,
    shape: "M10.5 1.7A6.5 6.5 0 1 0 14.3 10 5.5 5.5 0 0 1 10.5 1.7Z",
    meaning: "Another agent or the native plugin serves this link; see the reason. There is nothing to do.",
  },
  running: {
    label: "Running",
    group: "up",
    severity: 10,
    shape: "M8 1.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13ZM5 8.2l2.2 2.2L11 6",
  },
};

/** Not statuses of their own: of links that run and aren't well. */
const UNWELL = {
  // further than `lag-critical` allows
  behind: {
    label: "Behind",
    group: "degraded",
    severity: 3,
    shape: "M8 1.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13ZM8 4.5V8l2.5 2.5",
  },
  // again and again, and not at this moment
  interrupted: {
    label: "Interrupted",
    group: "degraded",
    severity: 3,
    shape: "M1 8h3l2.5-5 3 10L12 8h3",
  },
};

const UNKNOWN = {
  label: "Unknown",
  group: "busy",
  severity: 4,
  shape: "M8 1.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13Z",
};

/** From most to least severe; a topology draws one arrow for each. */
export const GROUPS = {
  down: { label: "down", dash: "7 5" },
  degraded: { label: "degraded", dash: "12 4 2 4" },
  busy: { label: "starting", dash: "3 3" },
  off: { label: "not active", dash: "1 5" },
  up: { label: "running", dash: null },
};

export const stateOf = (status) => STATES[status] ?? UNWELL[status] ?? UNKNOWN;

/** As which links are shown, from most to least severe. */
export const SHOWN = [...Object.keys(STATES), "behind"].sort((one, other) => stateOf(one).severity - stateOf(other).severity);

export const shownStatus = (view) => (view.status === "running" && view.critical_since ? "behind" : view.status);

export const needsSomebody = (status) => ["down", "degraded"].includes(stateOf(status).group);
