"""Reads the counters of links' upstream queues from the HTTP APIs of their brokers: one request for all links of a
vhost there.

Only the account in the report depends on it. A broker that doesn't respond is asked less often, and so is one that
needs long to respond.

Why: docs/decisions/0054-account-at-rest.md
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import structlog

from agent.core.addresses.uri import HttpUrl
from agent.core.links.upstream_account import QueueCounts
from agent.errors import BrokerError, PermanentError
from agent.management.answers import QueueCountsAnswer
from agent.management.client import ManagementClient
from agent.management.transport import Contexts
from agent.status.board import Board

TASK: Final = "look at queues upstream"
SHORTEST: Final = 5.0  # seconds between two looks: brokers have no newer numbers sooner
LONGEST: Final = 300.0  # while there is no answer
PATIENCE: Final = 10.0
AT_ONCE: Final = 8  # brokers that are asked
MOST: Final = 2**53  # no counter gets this high, and the report refuses lines with more
SHARE: Final = 20  # an answer is waited for during a twentieth of the time at most
_ADVICE: Final = (
    "the account of links from this upstream lacks what entered their queues: check `management` of the upstream"
)
_COUNTERS: Final = ("publish", "ack", "deliver_no_ack", "get_no_ack")
_NO_NUMBERS: Final = "its management plugin collects no statistics (management.rates_mode, disable_metrics_collector)"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CountedVhost:
    """One request: the queues of a vhost, by any of the interchangeable HTTP APIs."""

    urls: tuple[HttpUrl, ...]
    vhost: str
    upstream: str = field(compare=False)

    @property
    def place(self) -> tuple[str, ...]:
        """The vhost and addresses, which stay the same with another password."""
        return (self.vhost, *(url.safe for url in self.urls))


class CountedLink(Protocol):
    """A link; `upstream_queue` is the queue to look at, None where there is nothing to look at now."""

    @property
    def upstream_queue(self) -> tuple[CountedVhost, str] | None: ...

    def look_upstream(self, counts: QueueCounts | None, now: float) -> None:
        """Take the counts of the queue; None: the broker shows no numbers of it."""


@dataclass(slots=True)
class _Progress:
    due: float = 0.0
    failures: int = 0  # since the last answer
    failures_ever: int = 0
    error: str = ""
    is_counting: bool = False
    """True if the broker has said since its last failure that it collects statistics."""


class UpstreamCounters:
    """Reads the counters every `every` seconds while `run` runs. A response is waited for `patience` seconds; `clock`
    is the loop's."""

    def __init__(
        self,
        watched: Callable[[], Iterable[CountedLink]],
        board: Board,
        *,
        every: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._watched = watched
        self._board = board
        self._every = max(every, SHORTEST)
        self._sleep = sleep
        self._clock = clock or asyncio.get_running_loop().time
        self._patience = patience
        self._sources: dict[CountedVhost, _Progress] = {}
        self._contexts: Contexts = {}
        self._asking = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Read the counters at intervals until cancelled."""
        while True:
            with self._board.errors.catching(TASK):
                await self.look()
            await self._sleep(self._every)

    async def look(self) -> None:
        """Ask all brokers that are due."""
        links: dict[CountedVhost, list[tuple[CountedLink, str]]] = defaultdict(list)
        for each in self._watched():
            if (found := each.upstream_queue) is not None:
                links[found[0]].append((each, found[1]))
        self._sources = {asked: self._sources.get(asked, _Progress()) for asked in links}
        used = {url.tls for asked in links for url in asked.urls}
        self._contexts = {tls: context for tls, context in self._contexts.items() if tls in used}
        now = self._clock()
        due = [asked for asked in links if self._sources[asked].due <= now]
        await asyncio.gather(*(self._ask_safely(asked, links[asked]) for asked in due))

    async def _ask_safely(self, asked: CountedVhost, links: Collection[tuple[CountedLink, str]]) -> None:
        """Ask one upstream; its trouble must not delay the others."""
        with self._board.errors.catching(TASK, upstream=asked.upstream):
            await self._ask(asked, self._sources[asked], links)

    async def _ask(self, asked: CountedVhost, source: _Progress, links: Collection[tuple[CountedLink, str]]) -> None:
        async with self._asking:
            began = self._clock()
            try:
                async with asyncio.timeout(self._patience):
                    found = await self._counts(asked, source, {queue for _, queue in links})
            except (BrokerError, TimeoutError) as error:
                self._failed(asked, source, str(error) or f"no answer within {self._patience:g} s")
                return
            now = self._clock()
        if source.error:
            log.info("queues upstream can be looked at again", upstream=asked.upstream)
        source.failures, source.error = 0, ""
        source.due = now + SHARE * (now - began)
        for link, queue in links:
            if link.upstream_queue == (asked, queue):  # it may have changed meanwhile
                link.look_upstream(found.get(queue), now)

    async def _counts(
        self, asked: CountedVhost, source: _Progress, wanted: Collection[str]
    ) -> Mapping[str, QueueCounts | None]:
        """The counts of the wanted queues: a vhost may have very many others."""
        where = f"upstream {asked.upstream}"
        first = source.failures_ever % len(asked.urls)  # one that never answers takes all the time
        urls = (*asked.urls[first:], *asked.urls[:first])
        setting = f"management of {where}"
        client = ManagementClient(urls, where=where, setting=setting, timeout=self._patience, contexts=self._contexts)
        async with client:
            if not source.is_counting:
                overview = await client.overview()
                if overview.get("disable_stats") is True or overview.get("rates_mode") == "none":
                    raise PermanentError(_NO_NUMBERS, where=where)
                source.is_counting = True
            listed = await client.queue_counts(asked.vhost)
            return {each["name"]: queue_counts(each) for each in listed if each["name"] in wanted}

    def _failed(self, asked: CountedVhost, source: _Progress, error: str) -> None:
        source.failures += 1
        source.failures_ever += 1
        source.is_counting = False
        source.due = self._clock() + min(LONGEST, self._every * 2.0 ** min(source.failures, 10))
        if error != source.error:
            source.error = error
            log.warning("queues upstream can't be looked at", upstream=asked.upstream, error=f"{error}; {_ADVICE}")


def queue_counts(answer: QueueCountsAnswer) -> QueueCounts | None:
    """The counts of a queue; None if the broker shows none. A queue that nothing has passed since the broker's start
    has messages and no counters."""
    stats: Any = answer.get("message_stats", {})
    if not isinstance(stats, dict):
        return None
    numbers = [answer.get("messages"), *(stats.get(name, 0) for name in _COUNTERS)]
    if not all(isinstance(number, int) and 0 <= number <= MOST // len(numbers) for number in numbers):
        return None
    messages, entered, *acknowledged = numbers
    return QueueCounts(entered=entered, acknowledged=sum(acknowledged), messages=messages)
