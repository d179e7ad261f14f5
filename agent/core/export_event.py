"""The fields of a line of the status export: shared by its writer and its reader."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

SCHEMA: Final = 3
ACCOUNTED_SINCE: Final = 2
"""The first schema with `taken`, `given_back` and `unsettled`."""


class EventType(StrEnum):
    TRANSITION = "transition"
    SAMPLE = "sample"
    AGENT = "agent"
    STANDBY = "standby"


class AgentStatus(StrEnum):
    """The possible `status` of an `agent` event; that of a link is a `lifecycle.Status`."""

    STARTED = "started"
    HEARTBEAT = "heartbeat"
    STOPPED = "stopped"


class StandbyVerdict(StrEnum):
    """The possible `status` of a `standby` event."""

    IN_STEP = "in_step"
    NOT_IN_STEP = "not_in_step"
    PROMOTED = "promoted"


class FieldType(StrEnum):
    STRING = "string"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    FAILURE = "failure"
    """The facts of a failure, as `/api/links` shows them."""
    HISTOGRAM = "histogram"
    """{"le": bounds in seconds, "count": how many took no longer than each, and at the end the total, "sum"}"""


FIELDS: Final[dict[str, FieldType]] = {
    "schema": FieldType.LONG,
    "type": FieldType.STRING,
    "ts": FieldType.STRING,
    "seq": FieldType.LONG,
    "agent": FieldType.STRING,
    "group": FieldType.STRING,
    "cluster": FieldType.STRING,
    "link": FieldType.STRING,
    "kind": FieldType.STRING,
    "vhost": FieldType.STRING,
    "name": FieldType.STRING,
    "upstream": FieldType.STRING,
    "upstream_name": FieldType.STRING,
    "upstream_cluster": FieldType.STRING,
    "moves_from": FieldType.STRING,
    "uri": FieldType.STRING,
    "status": FieldType.STRING,
    "previous": FieldType.STRING,
    "reason": FieldType.STRING,
    "error": FieldType.STRING,
    "failure": FieldType.FAILURE,
    "forwarded": FieldType.LONG,
    "bytes": FieldType.LONG,
    "redelivered": FieldType.LONG,
    "dropped": FieldType.LONG,
    "quarantined": FieldType.LONG,
    "returned": FieldType.LONG,
    "taken": FieldType.LONG,
    "given_back": FieldType.LONG,
    "unsettled": FieldType.LONG,
    "looks": FieldType.LONG,
    "entered": FieldType.LONG,
    "acknowledged": FieldType.LONG,
    "growth": FieldType.LONG,
    "settled": FieldType.LONG,
    "settled_again": FieldType.LONG,
    "waiting": FieldType.LONG,
    "reconnects": FieldType.LONG,
    "blocked_seconds": FieldType.DOUBLE,
    "backlog": FieldType.LONG,
    "in_flight": FieldType.LONG,
    "oldest_unconfirmed_seconds": FieldType.DOUBLE,
    "lag_seconds": FieldType.DOUBLE,
    "last_probe": FieldType.STRING,
    "lag_is_critical": FieldType.BOOLEAN,
    "bindings": FieldType.LONG,
    "transfer": FieldType.HISTOGRAM,
    "interval": FieldType.DOUBLE,
}
"""In the order in which they are written; each is on every line, null if there is no value."""


class Reason(StrEnum):
    """The reason for a link's status."""

    APPEARED = "appeared"
    OPENED = "opened"
    RESTARTED = "restarted"
    RESUMED = "resumed"
    TAKEN_OVER = "taken_over"
    UNBLOCKED = "unblocked"
    PROGRESSED = "progressed"
    UPSTREAM_BLOCKED = "upstream_blocked"
    DOWNSTREAM_BLOCKED = "downstream_blocked"
    NO_CONFIRMS = "no_confirms"
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    UPSTREAM_REFUSED = "upstream_refused"
    UPSTREAM_LOST = "upstream_lost"
    UPSTREAM_CLOSED = "upstream_closed"
    UPSTREAM_HEARTBEAT = "upstream_heartbeat"
    UPSTREAM_STANDSTILL = "upstream_standstill"
    UPSTREAM_OTHER = "upstream_other"
    DOWNSTREAM_UNREACHABLE = "downstream_unreachable"
    DOWNSTREAM_REFUSED = "downstream_refused"
    DOWNSTREAM_LOST = "downstream_lost"
    DOWNSTREAM_CLOSED = "downstream_closed"
    DOWNSTREAM_HEARTBEAT = "downstream_heartbeat"
    DOWNSTREAM_STANDSTILL = "downstream_standstill"
    DOWNSTREAM_OTHER = "downstream_other"
    PAUSED = "paused"
    SERVED_ELSEWHERE = "served_elsewhere"
    UNWANTED = "unwanted"
    WANTED = "wanted"
    REMOVED = "removed"
    COMPLETED = "completed"
    STOPPED = "stopped"
