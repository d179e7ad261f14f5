"""Which consumers of the downstream's queues are other federation links: those with a priority below 0.

A passive declare counts them with the others. The events of consumers report their priorities at once. The HTTP API
lists all of them, also those that came while nobody listened, but some seconds late. So of a consumer that an event was
about lately, the event counts, and of all others the list.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import structlog

from agent.core.broker_events import BrokerEvent
from agent.downstream.listen import Listener, SaidAlreadyError
from agent.errors import AgentError
from agent.management.answers import ConsumerAnswer
from agent.tasks import together

CONSUMER_EVENTS: Final = ("consumer.*",)
LISTEN_AGAIN: Final = 5.0
ASK_AGAIN: Final = 60.0  # where a broker reports nothing, whether it does now
READ_AGAIN: Final = 30.0
READ_ALONE: Final = 5.0  # without events
MOST_TOUCHED: Final = 1_000
LATE: Final = 10.0  # seconds that the list may be late
SETTLE: Final = 0.02
EXPECTED_FOR: Final = 30.0
_PRIORITY: Final = re.compile(r'\{<<"x-priority">>,[a-z]+,(-?\d{1,20})\}')

QueueName = tuple[str, str]
"""A vhost and a queue of it."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Below:
    """A consumer of a queue whose priority is below 0."""

    queue: str
    tag: str


class Consumers:
    """What is known of them now; `is_heard`: whether events report what changes."""

    def __init__(self) -> None:
        self.is_heard = False
        self.is_watched = asyncio.Event()
        self.has_new_vhost = asyncio.Event()
        self._known: dict[str, Counter[Below]] = {}
        self._by_queue: dict[str, Counter[str]] = {}
        self._touched: dict[str, dict[Below, float]] = defaultdict(dict)
        self._watchers: dict[QueueName, list[Callable[[], None]]] = defaultdict(list)
        self._vhosts: Counter[str] = Counter()
        self._expected: dict[str, float] = {}

    @property
    def vhosts(self) -> tuple[str, ...]:
        """Those whose queues somebody watches, or soon will."""
        return tuple(self._vhosts | self._expected)

    def expect(self, vhost: str, now: float) -> None:
        """Somebody soon watches a queue of the vhost: its consumers are to be known by then."""
        if vhost not in self._vhosts and vhost not in self._expected:
            self.has_new_vhost.set()
            self.is_watched.set()
        if vhost not in self._vhosts:
            self._expected[vhost] = now

    def forget_unwatched(self, now: float) -> None:
        """What was expected long ago and that nobody watches."""
        for vhost in [each for each, since in self._expected.items() if now - since >= EXPECTED_FOR]:
            del self._expected[vhost]
            self._drop(vhost)

    def below_zero(self, vhost: str, queue: str) -> int | None:
        """How many consumers of the queue have such a priority; None before that is known."""
        found = self._by_queue.get(vhost)
        return None if found is None else found[queue]

    @contextmanager
    def watching(self, vhost: str, queue: str, wake: Callable[[], None]) -> Iterator[None]:
        """`wake` is called when consumers of the queue have come or gone."""
        if not self._follows(vhost):
            self.has_new_vhost.set()
        self._vhosts[vhost] += 1
        self._expected.pop(vhost, None)
        self._watchers[vhost, queue].append(wake)
        self.is_watched.set()
        try:
            yield
        finally:
            self._forget(vhost, queue, wake)

    def _forget(self, vhost: str, queue: str, wake: Callable[[], None]) -> None:
        watchers = self._watchers[vhost, queue]
        watchers.remove(wake)
        if not watchers:
            del self._watchers[vhost, queue]
        self._vhosts[vhost] -= 1
        if not self._vhosts[vhost]:
            del self._vhosts[vhost]
            self._drop(vhost)

    def _drop(self, vhost: str) -> None:
        if not self._follows(vhost):
            for table in (self._known, self._by_queue, self._touched):
                table.pop(vhost, None)

    def _follows(self, vhost: str) -> bool:
        return vhost in self._vhosts or vhost in self._expected

    def hears(self, is_heard: bool) -> None:
        """Whether events report what changes from now on. Nobody reported what changed meanwhile."""
        if is_heard is not self.is_heard:
            self.is_heard = is_heard
            for watchers in tuple(self._watchers.values()):
                for wake in watchers:
                    wake()

    def heard(self, event: BrokerEvent, now: float) -> None:
        """Of queues that nobody watches too: a link that begins to watch one finds its consumers known."""
        vhost, queue, tag = (event.fields.get(key) for key in ("vhost", "queue", "consumer_tag"))
        if not isinstance(vhost, str) or not isinstance(queue, str) or not self._follows(vhost):
            return
        below, is_gone = Below(queue, str(tag)), event.name == "consumer.deleted"
        is_concerned = self._may_know(vhost, below) if is_gone else _is_below(event.fields.get("arguments"))
        if is_concerned:
            self._change(vhost, below, -1 if is_gone else 1)
            self._touch(vhost, below, now)
        self._wake(vhost, queue)

    def _may_know(self, vhost: str, below: Below) -> bool:
        """Whether the list had it, or may still have it when it is read."""
        return (vhost, below.queue) in self._watchers or below in self._known.get(vhost, ())

    def _change(self, vhost: str, below: Below, by: int) -> None:
        known = self._known.setdefault(vhost, Counter())
        before = known.pop(below, 0)
        count = max(0, before + by)
        if count:
            known[below] = count
        if vhost in self._by_queue:
            by_queue = self._by_queue[vhost]
            by_queue[below.queue] += count - before
            if by_queue[below.queue] <= 0:
                del by_queue[below.queue]

    def _touch(self, vhost: str, below: Below, now: float) -> None:
        touched = self._touched[vhost]
        touched[below] = now
        if len(touched) > MOST_TOUCHED:
            self._touched[vhost] = {each: at for each, at in touched.items() if now - at < LATE}

    def read(self, vhost: str, found: Iterable[ConsumerAnswer] | None, now: float) -> None:
        """The list of a vhost's consumers, None where it can't be had. An empty one proves nothing: a broker that
        collects no statistics has no other."""
        if not self._follows(vhost):
            return
        listed = None if found is None else tuple(found)
        before = self._by_queue.get(vhost)
        if listed:
            self._take(vhost, Counter(_below(listed)), now)
        self._count(vhost)
        after = self._by_queue[vhost]
        for of_vhost, queue in tuple(self._watchers):
            if of_vhost == vhost and (before is None or before[queue] != after[queue]):
                self._wake(vhost, queue)

    def _take(self, vhost: str, listed: Counter[Below], now: float) -> None:
        touched = self._touched[vhost] = {
            below: at for below, at in self._touched[vhost].items() if now - at < LATE
        }  # fmt: skip
        known = self._known.get(vhost, Counter())
        kept = Counter({below: count for below, count in known.items() if below in touched})
        self._known[vhost] = kept + Counter({below: n for below, n in listed.items() if below not in touched})

    def _count(self, vhost: str) -> None:
        by_queue: Counter[str] = Counter()
        for below, count in self._known.get(vhost, Counter()).items():
            by_queue[below.queue] += count
        self._by_queue[vhost] = by_queue

    def _wake(self, vhost: str, queue: str) -> None:
        for wake in self._watchers.get((vhost, queue), ()):
            wake()


def _below(listed: Iterable[ConsumerAnswer]) -> Iterator[Below]:
    for each in listed:
        name = each["queue"].get("name")
        if isinstance(name, str) and _is_below(each.get("arguments")):
            yield Below(name, each["consumer_tag"])


def _is_below(arguments: Any) -> bool:
    """Events hold them as text in Erlang's syntax."""
    if isinstance(arguments, Mapping):
        priority = arguments.get("x-priority")
        return isinstance(priority, int | float) and priority < 0
    texts = arguments if isinstance(arguments, list) else []
    found = (_PRIORITY.fullmatch(text) for text in texts if isinstance(text, str))
    return any(int(each[1]) < 0 for each in found if each is not None)


class ConsumerFollower:
    """Keeps `consumers` up to date, while somebody watches queues; `read` asks the HTTP API for those of a vhost."""

    def __init__(
        self, consumers: Consumers, *, listener: Listener, read: Callable[[str], Awaitable[list[ConsumerAnswer]]]
    ) -> None:
        self._consumers = consumers
        self._listener = listener
        self._read = read
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Until cancelled."""
        await self._consumers.is_watched.wait()
        await together(self._listen(), self._read_all())

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
                await asyncio.sleep(ASK_AGAIN)
            except SaidAlreadyError:
                await asyncio.sleep(LISTEN_AGAIN)
            finally:
                self._consumers.hears(False)

    async def _hear(self) -> None:
        """Ends by itself where the broker reports nothing."""
        async with self._listener.events(CONSUMER_EVENTS) as events:
            if events is None:
                return
            self._consumers.hears(True)
            self._consumers.has_new_vhost.set()  # for what changed while nobody listened
            async for event in events:
                self._consumers.heard(event, self._loop.time())

    async def _read_all(self) -> None:
        """At once, and again when the list can't be late any more; later from time to time."""
        is_again = False
        while True:
            begun = self._loop.time()
            self._consumers.forget_unwatched(begun)
            for vhost in self._consumers.vhosts:
                await self._read_one(vhost)
            rest = READ_AGAIN if self._consumers.is_heard else READ_ALONE
            if is_again:
                rest = min(rest, LATE)
            await asyncio.sleep(self._loop.time() - begun)
            is_again = await self._has_new_vhost(rest)

    async def _has_new_vhost(self, seconds: float) -> bool:
        new = self._consumers.has_new_vhost
        try:
            async with asyncio.timeout(seconds):
                await new.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(SETTLE)
        new.clear()
        return True

    async def _read_one(self, vhost: str) -> None:
        found: list[ConsumerAnswer] | None = None
        try:
            found = await self._read(vhost)
        except AgentError as error:  # whoever polls reports what is wrong
            log.debug("consumers not read", vhost=vhost, error=str(error))
        self._consumers.read(vhost, found, self._loop.time())
