"""Events as lines: one JSON object each, with every field."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from agent.core.export_event import FIELDS, SCHEMA, AgentStatus, EventType
from agent.core.links.histogram import Histogram
from agent.core.links.lifecycle import Status
from agent.core.links.upstream_account import Compared
from agent.core.text.quantities import rfc3339
from agent.status.board import Board
from agent.status.entry import BoardEntry
from agent.status.export.files import ExportLine
from agent.status.views import link_view

_NOTHING: Final = dict.fromkeys(FIELDS)
_OF_VIEW: Final = (
    "kind", "vhost", "upstream", "uri", "status", "error", "failure",
    "forwarded", "bytes", "redelivered", "dropped", "quarantined", "returned", "reconnects",
    "backlog", "in_flight", "oldest_unconfirmed_seconds", "lag_seconds", "last_probe", "bindings",
)  # fmt: skip
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


@dataclass
class ExportEvents:
    """The numbered events of one run."""

    board: Board
    _seq: int = 0

    def of_agent(self, status: AgentStatus, interval: float) -> ExportLine:
        return self._line(EventType.AGENT, {"status": status, "interval": interval})

    def sample(self, entry: BoardEntry) -> ExportLine:
        """A regular sample; its reason is that of the last transition."""
        return self._line(EventType.SAMPLE, self._of_link(entry))

    def transition(self, entry: BoardEntry, previous: Status | None) -> ExportLine:
        return self._line(EventType.TRANSITION, self._of_link(entry) | {"previous": previous})

    def _of_link(self, entry: BoardEntry) -> dict[str, Any]:
        view: dict[str, Any] = {**link_view(self.board, entry)}
        gauges = entry.gauges()
        if entry.state.status is Status.REMOVING:  # the seconds left would make each sample different
            view["error"] = entry.state.error
        return {
            **{name: view[name] for name in _OF_VIEW},
            "upstream_cluster": gauges.upstream_cluster,  # of a shovel none: it may lead elsewhere
            "link": entry.link.id,
            "name": entry.link.name,
            "upstream_name": entry.link.remote_name,
            "reason": entry.changed_for,
            "taken": entry.meter.taken,
            "given_back": entry.meter.given_back,
            "unsettled": gauges.unsettled,
            **_compared(gauges.upstream),
            "lag_is_critical": entry.lag_is_critical,  # as noted for the view
            "blocked_seconds": round(entry.blocked_seconds, 3),
            "transfer": _transfer(entry.meter.transfer),
        }

    def _line(self, kind: EventType, fields: dict[str, Any]) -> ExportLine:
        self._seq += 1
        ts = rfc3339(self.board.clock(), digits="microseconds")
        head = {
            "schema": SCHEMA,
            "type": kind,
            "ts": ts,
            "seq": self._seq,
            "agent": self.board.owner,
            "group": self.board.group or None,
            "cluster": self.board.cluster,
        }
        text = _ENCODER.encode({**_NOTHING, **head, **fields}).encode("ascii") + b"\n"
        return ExportLine(ts[:10], text, recurs=kind is EventType.SAMPLE)


def _compared(found: Compared) -> dict[str, Any]:
    """The fields of the comparison with the upstream's counters; none before the first one: most links are never
    compared."""
    return asdict(found) if found.looks else {}


def day_at(seconds: float) -> str:
    return rfc3339(seconds)[:10]


def _transfer(found: Histogram) -> dict[str, Any]:
    return {"le": found.bounds, "count": list(found.cumulative), "sum": round(found.sum, 6)}
