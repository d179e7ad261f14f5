"""The columns that are read and written, by name and type; internal times are whole microseconds since 1970."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from agent.core.export_event import FIELDS, FieldType

VERSION: Final = 5
"""The version of the tables; it increases when a column is new, or changes its name or meaning: those of another one
are made anew."""

SECOND: Final = 1_000_000
CELL: Final = 300 * SECOND
"""Five minutes: the interval of `traffic`, and of the thinning of lines."""
DAY: Final = 24 * 3600 * SECOND // CELL
"""Cells of a day in UTC."""

MISSED_HEARTBEATS: Final = 3
"""An agent that missed this many is dead."""
USUAL_INTERVAL: Final = 10 * SECOND
"""The sample interval of agents that never reported theirs."""
NAMELESS: Final = 24 * 3600 * SECOND
"""An agent that doesn't reach its cluster for longer is not assigned to its group before."""

BROKEN_LINE: Final = "broken_line"


class Bucket(StrEnum):
    UP = "up"
    DEGRADED = "degraded"
    DOWN = "down"
    PAUSED = "paused"
    UNKNOWN = "unknown"


BUCKETS: Final[dict[str, Bucket]] = {
    "running": Bucket.UP,
    "blocked": Bucket.DEGRADED,
    "stalled": Bucket.DEGRADED,
    "starting": Bucket.DOWN,
    "backoff": Bucket.DOWN,
    "invalid": Bucket.DOWN,
    "paused": Bucket.PAUSED,
    "terminated": Bucket.PAUSED,
    "removing": Bucket.PAUSED,
    "standby": Bucket.UNKNOWN,
    "stopping": Bucket.UNKNOWN,
}
"""Every status of a link, the best first: if several agents report on one link, the best counts."""

EXPECTED: Final = (Bucket.UP, Bucket.DEGRADED, Bucket.DOWN)
"""While a link is in one of these, messages should flow."""

UPSTREAM_COUNTERS: Final = ("looks", "entered", "acknowledged", "settled", "settled_again")
"""Counts of the upstream's HTTP API, and of the link beside it; `looks` is how often that could be compared."""
COUNTERS: Final = (
    *("forwarded", "bytes", "redelivered", "dropped", "quarantined", "returned", "taken", "given_back"),
    *UPSTREAM_COUNTERS,
)
LINK_ATTRIBUTES: Final = ("cluster", "kind", "vhost", "name", "upstream", "upstream_name", "upstream_cluster", "uri")
LINK: Final = ("group", "link")
STANDBY: Final = "standby"
"""As a link of each group, the verdict of the group's standby: no link has such an id."""
REPORTER: Final = (*LINK, "agent")
CAUSE: Final = ("reason", "error", "failure")
"""Of a status: in one word, in a sentence, and as facts, which only lines of later agents have."""

FAILURE_FIELDS: Final = ("kind", "side", "broker", "user", "vhost", "object", "object_type", "permission")
FAILURE: Final = f"struct<{', '.join(f'{name}: string' for name in FAILURE_FIELDS)}>"
_JSON_TYPES: Final[dict[FieldType, str]] = {
    FieldType.STRING: "string",
    FieldType.LONG: "bigint",
    FieldType.DOUBLE: "double",
    FieldType.BOOLEAN: "boolean",
    FieldType.FAILURE: FAILURE,
    FieldType.HISTOGRAM: "struct<le: array<double>, count: array<bigint>, sum: double>",
}
INPUT: Final = ", ".join(
    [
        *(f"`{name}` {'timestamp' if name == 'ts' else _JSON_TYPES[kind]}" for name, kind in FIELDS.items()),
        f"`{BROKEN_LINE}` string",
    ]
)

_CAUSE: Final = f"reason string, error string, failure {FAILURE}"
KEPT_LINES: Final = ", ".join(
    [
        "ts bigint, seq bigint, status string, type string, told_in string, backlog bigint, `interval` bigint",
        "lag_is_critical boolean",
        *(f"{counter} bigint" for counter in COUNTERS),
        "why string, line string, file string, schema bigint, `group` string, agent string, link string, cell bigint",
        _CAUSE,
        *(f"{trait} string" for trait in LINK_ATTRIBUTES),
        f"unsettled bigint, growth bigint, waiting bigint, transfer {_JSON_TYPES[FieldType.HISTOGRAM]}",
        "moves_from string, cell_backlog bigint, silent boolean, first boolean, lines bigint, unbroken boolean",
    ]
)
"""The lines kept between runs. Batches of an earlier version lack the columns that were added since: those are null.
So a column keeps its name: `told_in` is the run of the agent whose own line this is."""

_LINK_COLUMNS: Final = "`group` string, link string, " + ", ".join(f"`{trait}` string" for trait in LINK_ATTRIBUTES)
_BUCKET_SECONDS: Final = ", ".join(f"{bucket}_seconds decimal(18,6)" for bucket in Bucket)

TABLES: Final[dict[str, str]] = {
    "intervals": f"{_LINK_COLUMNS}, start timestamp, `end` timestamp, seconds decimal(18,6), bucket string, "
    f"status string, agent string, {_CAUSE}, date date",
    "availability": f"{_LINK_COLUMNS}, period string, start timestamp, `end` timestamp, {_BUCKET_SECONDS}, "
    "availability_percent double, availability_with_pauses_percent double, coverage_percent double, "
    "transitions bigint, incidents bigint, mttr_seconds decimal(18,6), mtbf_seconds decimal(18,6), "
    "outage_median_seconds decimal(18,6), outage_p90_seconds decimal(18,6), outage_max_seconds decimal(18,6), "
    "lag_critical_seconds decimal(18,6), date date",
    "traffic": f"{_LINK_COLUMNS}, start timestamp, messages bigint, bytes bigint, rate double, redelivered bigint, "
    "dropped bigint, quarantined bigint, returned bigint, transfer_p50_seconds double, transfer_p95_seconds double, "
    "transfer_p99_seconds double, transfer_le array<double>, transfer_counts array<bigint>, peak_backlog bigint, "
    "last_backlog bigint, moves_from string, date date",
    "incidents": f"{_LINK_COLUMNS}, start timestamp, `end` timestamp, `open` boolean, seconds decimal(18,6), "
    f"down_seconds decimal(18,6), flaps bigint, status string, {_CAUSE}, agent string, "
    "peak_backlog bigint, outage string, outage_scope string, outage_name string, outage_links bigint, date date",
    "slo": f"{_LINK_COLUMNS}, objective string, measured_by string, target_percent double, window_days bigint, "
    "total double, bad double, attained_percent double, consumed_percent double, remaining_percent double, "
    "seen_days double, period_consumed_percent double, burn_1h double, burn_5m double, burn_6h double, "
    "burn_30m double, burn_3d double, date date",
    "edges": "upstream_cluster string, cluster string, links bigint, messages bigint, bytes bigint, "
    "availability_percent double, worst_link string, worst_link_availability_percent double, date date",
    "standby": "`group` string, cluster string, upstream string, start timestamp, `end` timestamp, "
    "seconds decimal(18,6), status string, agent string, error string, date date",
    "account": f"{_LINK_COLUMNS}, period string, start timestamp, `end` timestamp, taken bigint, forwarded bigint, "
    "dropped bigint, quarantined bigint, given_back bigint, in_flight_start bigint, in_flight_end bigint, "
    "unexplained bigint, entered bigint, acknowledged bigint, expired bigint, uncounted bigint, repeated bigint, "
    "backlog_start bigint, backlog_end bigint, unexplained_upstream bigint, date date",
    "rejected": "why string, schema bigint, file string, line string, date date",
}
"""Each table's columns; `date` is also its directory."""
