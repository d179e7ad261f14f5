"""Figures of queues, from the HTTP API of one cluster, and whether they continue those of before."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.core.standby.trim import CopyFigures, SourceFigures
from agent.errors import TransientError
from agent.management.answers import NodeAnswer, QueueFiguresAnswer
from agent.management.client import ManagementClient

MOST: Final = 2**53
LONGEST_NODE: Final = 255
SLOW: Final = 8.0
"""Seconds that a list may take: brokers give it again for five times as long, and then it is nearly as late as the
proof allows for. That another client's list was slow isn't seen."""
CACHED: Final = 5
LONGEST: Final = 30.0
"""Seconds for the lists of all vhosts."""
RUNNING: Final = frozenset({"running", "flow", "idle"})


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """Of one queue, by one look; None where the broker shows no such figure."""

    identity: str
    messages: int | None
    unacknowledged: int | None
    consumers: int | None
    entered: int | None
    delivered: int | None
    redelivered: int | None
    acknowledged: int | None

    @property
    def of_source(self) -> SourceFigures:
        return SourceFigures(self.identity, self.messages, self.delivered, self.redelivered, self.acknowledged)

    @property
    def of_copy(self) -> CopyFigures:
        return CopyFigures(self.identity, self.messages, self.entered)


class ClusterFigures:
    """Reads them from one cluster. With each restart of any of its nodes all queues become others: counters begin
    anew, and messages may come back."""

    def __init__(self, client: ManagementClient, clock: Callable[[], float] = time.monotonic) -> None:
        self.why_old = ""
        """The reason why the figures of the last look may be older than the proof allows for; empty if they aren't."""
        self._client = client
        self._clock = clock
        self._cached_until = 0.0
        self._uptimes: Mapping[str, int] = {}
        self._restarts = 0
        self._seen_down: Counter[tuple[str, str]] = Counter()

    async def look(self, vhosts: Iterable[str]) -> dict[tuple[str, str], QueueFigures]:
        """By vhost and name. Raises BrokerError."""
        overview = await self._client.overview()
        counts = overview.get("disable_stats") is not True and overview.get("rates_mode") != "none"
        self._note(await self._client.nodes())
        began = self._clock()
        found = {
            (vhost, each["name"]): self._figures((vhost, each["name"]), each, counts=counts)
            for vhost in vhosts
            for each in await self._listed(vhost)
        }
        self._judge_age(self._clock() - began)
        self._seen_down = Counter({queue: times for queue, times in self._seen_down.items() if queue in found})
        return found

    async def _listed(self, vhost: str) -> list[QueueFiguresAnswer]:
        began = self._clock()
        found = await self._client.queue_figures(vhost)
        took = self._clock() - began
        if took > SLOW:
            self._cached_until = self._clock() + CACHED * took
        return found

    def _judge_age(self, took: float) -> None:
        self.why_old = ""
        if self._clock() < self._cached_until:
            self.why_old = f"a list of queues took over {SLOW:g} s, and brokers give such a list again for some time"
        elif took > LONGEST:
            self.why_old = f"to look at all vhosts took {took:.0f} s"

    def _note(self, nodes: Iterable[NodeAnswer]) -> None:
        uptimes = {
            each["name"]: uptime
            for each in nodes
            if each.get("running") is True and isinstance(uptime := each.get("uptime"), int)
        }
        if not uptimes:
            raise TransientError("the HTTP API doesn't show yet for how long its nodes have run")
        is_same = uptimes.keys() == self._uptimes.keys()
        if not is_same or any(uptime < self._uptimes[name] for name, uptime in uptimes.items()):
            self._restarts += 1
        self._uptimes = uptimes

    def _figures(self, queue: tuple[str, str], answer: QueueFiguresAnswer, *, counts: bool) -> QueueFigures:
        """One that isn't running has no figures, and is another queue when it is back."""
        state = answer.get("state")
        is_running = isinstance(state, str) and state in RUNNING
        if not is_running:
            self._seen_down[queue] += 1
        where = str(answer.get("leader") or answer.get("node"))[:LONGEST_NODE]
        identity = f"{self._restarts} {where} {self._seen_down[queue]}"
        if not is_running:
            return QueueFigures(identity, None, None, None, None, None, None, None)
        stats: Any = answer.get("message_stats", {}) if counts else None
        ended = [_stat(stats, name) for name in ("ack", "deliver_no_ack", "get_no_ack")]
        known = [each for each in ended if each is not None]
        return QueueFigures(
            identity,
            _number(answer.get("messages")),
            _number(answer.get("messages_unacknowledged")),
            _number(answer.get("consumers")),
            _stat(stats, "publish"),
            _stat(stats, "deliver_get"),
            _stat(stats, "redeliver"),
            sum(known) if len(known) == len(ended) else None,
        )


def _stat(stats: Any, name: str) -> int | None:
    """A queue without traffic since the broker began to count has no counters: they are zero."""
    return _number(stats.get(name, 0)) if isinstance(stats, dict) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST else None
