"""The consumers of the downstream's queues that are other federation links: those with a priority below 0.

A passive declare counts them with the others. The events of consumers report their priorities at once, and those of
channels that they have gone. The HTTP API lists all of them, also those that came while nobody listened, but some
seconds late. So of a consumer that an event was about lately, the event counts, and of all others the list.

Why: docs/decisions/0042-consumers-by-elimination.md
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import structlog

from agent.amqp.broker_events import BrokerEvent
from agent.downstream.listen import Listener, follow
from agent.errors import AgentError
from agent.management.answers import ConsumerAnswer
from agent.tasks import run_until_first

DELETED: Final = "consumer.deleted"
CHANNEL_CLOSED: Final = "channel.closed"
MOST_TOUCHED: Final = 1_000
LATE: Final = 10.0  # seconds that the list may be late
EXPECTED_FOR: Final = 30.0
MOST_ON_CHANNELS: Final = 50_000
"""Channels, and consumers that matter: of further ones the end is unknown, and has to be read."""
_PRIORITY: Final = re.compile(r'\{<<"x-priority">>,[a-z]+,(-?\d{1,20})\}')

_Key = TypeVar("_Key")
QueueName = tuple[str, str]
"""A vhost and a queue of it."""


@dataclass(frozen=True, slots=True)
class ConsumerOf:
    """A consumer of a queue; `is_below`: its priority is below 0. Links to upstreams of one name have the same tag."""

    vhost: str
    queue: str
    tag: str
    is_below: bool


class ConsumerChannels:
    """The consumers on each channel, as events report them.

    Where a channel ends and its consumers with it, brokers report the end of each consumer until 3.12, and of consumers
    of quorum queues; since 3.13 they report of other queues' consumers only that the channel is closed.
    """

    def __init__(self, most: int = MOST_ON_CHANNELS) -> None:
        self._most = most
        self._totals: Counter[str] = Counter()
        self._by_channel: dict[str, Counter[ConsumerOf]] = {}
        self._counts: Counter[ConsumerOf] = Counter()

    def come(self, channel: str) -> None:
        """Note one more consumer on the channel, whatever it consumes."""
        if channel in self._totals or len(self._totals) < self._most:
            self._totals[channel] += 1

    def go(self, channel: str) -> None:
        _less(self._totals, channel, 1)

    def add(self, channel: str, consumer: ConsumerOf) -> None:
        """Note which consumer has come, if it is one that matters; `come` has counted it."""
        if channel not in self._totals:
            return
        if consumer in self._counts or len(self._counts) < self._most:
            self._by_channel.setdefault(channel, Counter())[consumer] += 1
            self._counts[consumer] += 1
        else:
            self.go(channel)

    def remove(self, channel: str, consumer: ConsumerOf) -> bool:
        """Note that a consumer has gone; True if it was known."""
        found = self._by_channel.get(channel, Counter())
        if not found[consumer]:
            return False
        _less(found, consumer, 1)
        _less(self._counts, consumer, 1)
        if not found:
            del self._by_channel[channel]
        return True

    def count(self, consumer: ConsumerOf) -> int:
        """The number of these consumers on known channels."""
        return self._counts[consumer]

    def close(self, channel: str) -> tuple[Counter[ConsumerOf], int]:
        """Note that a channel is closed; returns the known consumers that end with it, and the number of all consumers
        that were known there."""
        found = self._by_channel.pop(channel, Counter())
        for consumer, count in found.items():
            _less(self._counts, consumer, count)
        return found, self._totals.pop(channel, 0)

    def forget(self, *, if_: Callable[[ConsumerOf], bool]) -> None:
        """Forget consumers that matter no more."""
        for channel, found in tuple(self._by_channel.items()):
            for consumer in [each for each in found if if_(each)]:
                _less(self._counts, consumer, found.pop(consumer))
            if not found:
                del self._by_channel[channel]

    def forget_all(self) -> None:
        for table in (self._totals, self._by_channel, self._counts):
            table.clear()


def _less(counts: Counter[_Key], key: _Key, by: int) -> None:
    counts[key] -= by
    if counts[key] <= 0:
        del counts[key]


class Consumers:
    """The consumers with a priority below 0, as far as they are known. `is_heard`: events report changes."""

    def __init__(self) -> None:
        self.is_heard = False
        self.is_watched = asyncio.Event()
        self.must_read = asyncio.Event()  # the list: a vhost is new, or something has gone unseen
        self._known: dict[str, Counter[ConsumerOf]] = {}
        self._by_queue: dict[str, Counter[str]] = {}
        self._touched: dict[str, dict[ConsumerOf, float]] = defaultdict(dict)
        self._watchers: dict[QueueName, list[Callable[[], None]]] = defaultdict(list)
        self._vhosts: Counter[str] = Counter()
        self._expected: dict[str, float] = {}
        self._channels = ConsumerChannels()
        self._doubtful: dict[ConsumerOf, float] = {}  # one of them may have gone, since when
        self._are_all_doubtful = False  # that the list had
        self._to_check: set[ConsumerOf] = set()  # by a list that can't be late for them any more

    @property
    def vhosts(self) -> tuple[str, ...]:
        """The vhosts whose queues are watched, or soon will be."""
        return tuple(self._vhosts | self._expected)

    def must_check(self) -> bool:
        """True if the list is to be read sooner than usual."""
        return bool(self._to_check)

    def expect(self, vhost: str, now: float) -> None:
        """Note that a queue of the vhost will soon be watched: its consumers are to be known by then."""
        if vhost not in self._vhosts and vhost not in self._expected:
            self.must_read.set()
            self.is_watched.set()
        if vhost not in self._vhosts:
            self._expected[vhost] = now

    def forget_unwatched(self, now: float) -> None:
        """Forget vhosts that were expected long ago and that nobody watches."""
        for vhost in [each for each, since in self._expected.items() if now - since >= EXPECTED_FOR]:
            del self._expected[vhost]
            self._drop(vhost)

    def below_zero(self, vhost: str, queue: str) -> int | None:
        """The number of consumers of the queue with a priority below 0; None before it is known."""
        found = self._by_queue.get(vhost)
        return None if found is None else found[queue]

    @contextmanager
    def watching(self, vhost: str, queue: str, wake: Callable[[], None]) -> Iterator[None]:
        """Watch a queue: `wake` is called when consumers of it have come or gone."""
        if not self._follows(vhost):
            self.must_read.set()
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
            self._channels.forget(if_=lambda consumer: consumer.vhost == vhost and not consumer.is_below)
            self._doubtful = {each: since for each, since in self._doubtful.items() if each.vhost != vhost}
            self._to_check = {each for each in self._to_check if each.vhost != vhost}

    def _follows(self, vhost: str) -> bool:
        return vhost in self._vhosts or vhost in self._expected

    def hears(self, is_heard: bool, now: float) -> None:
        """Note whether events report changes from now on. Changes until now may have gone unreported."""
        if is_heard is not self.is_heard:
            self.is_heard = is_heard
            self._channels.forget_all()
            self._doubt(now)
            for watchers in tuple(self._watchers.values()):
                for wake in watchers:
                    wake()

    def heard(self, event: BrokerEvent, now: float) -> None:
        """Apply an event, also one of a queue that nobody watches: a link that begins to watch one finds its consumers
        known."""
        if event.name == CHANNEL_CLOSED:
            self._channel_closed(event, now)
            return
        channel, is_gone = str(event.fields.get("channel")), event.name == DELETED
        (self._channels.go if is_gone else self._channels.come)(channel)
        vhost, queue, tag = (event.fields.get(key) for key in ("vhost", "queue", "consumer_tag"))
        if not isinstance(vhost, str) or not isinstance(queue, str):
            return
        if is_gone:
            self._gone(channel, ConsumerOf(vhost, queue, str(tag), is_below=True), now)
        else:
            is_below = _is_below(event.fields.get("arguments"))
            self._come(channel, ConsumerOf(vhost, queue, str(tag), is_below), now)
        self._wake(vhost, queue)

    def _come(self, channel: str, consumer: ConsumerOf, now: float) -> None:
        """Apply that a consumer has come. One with a priority below 0 is kept with its channel also where nobody
        watches yet: the list has it by the time that somebody does."""
        if consumer.is_below or (consumer.vhost, consumer.queue) in self._watchers:
            self._channels.add(channel, consumer)
        if consumer.is_below:
            is_back = self._doubtful.pop(consumer, None) is not None  # and nobody reported that it was gone
            self._change(consumer, 0 if is_back else 1, now)
            # It may be another one's successor: nobody reports the end of what was connected to a node that is down.
            if (self.below_zero(consumer.vhost, consumer.queue) or 0) > 1:
                self._to_check.add(consumer)

    def _gone(self, channel: str, below: ConsumerOf, now: float) -> None:
        """Apply that a consumer has gone, whose priority may have been `below` 0."""
        if self._channels.remove(channel, below):
            self._change(below, -1, now)
        elif self._channels.remove(channel, replace(below, is_below=False)) or not self._may_know(below):
            return
        elif self._known.get(below.vhost, Counter())[below] > self._channels.count(below):
            self._doubtful.pop(below, None)
            self._change(below, -1, now)
        else:
            self._change(below, 0, now)

    def _channel_closed(self, event: BrokerEvent, now: float) -> None:
        """Remove the consumers of a closed channel: those that are known by events, and perhaps some that only the list
        had."""
        ended, known = self._channels.close(str(event.fields.get("pid")))
        for consumer, count in ended.items():
            if consumer.is_below:
                self._change(consumer, -count, now)
            self._wake(consumer.vhost, consumer.queue)
        total = event.fields.get("consumer_count")  # only brokers that don't report the end of each have it
        if isinstance(total, int) and total > known:
            if not self._are_all_doubtful:  # very many may end at once, beside very many links
                self._doubt(now)
            if self._doubtful:
                self.must_read.set()

    def _doubt(self, now: float) -> None:
        known = (each for of_vhost in self._known.values() for each in of_vhost.items())
        self._doubtful |= {below: now for below, count in known if count > self._channels.count(below)}
        self._are_all_doubtful = True

    def _may_know(self, below: ConsumerOf) -> bool:
        """True if the list had the consumer, or may still have it when it is read."""
        return (below.vhost, below.queue) in self._watchers or below in self._known.get(below.vhost, ())

    def _change(self, below: ConsumerOf, by: int, now: float) -> None:
        """Change a count as an event reported. Until the list can't be late any more, the event counts, and not the
        list."""
        vhost = below.vhost
        if not self._follows(vhost):
            return
        touched = self._touched[vhost]
        touched[below] = now
        if len(touched) > MOST_TOUCHED:
            self._touched[vhost] = {each: at for each, at in touched.items() if now - at < LATE}
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

    def read(self, vhost: str, found: Iterable[ConsumerAnswer] | None, now: float) -> None:
        """Apply the list of a vhost's consumers, None where it can't be had. An empty one proves nothing: a broker that
        collects no statistics has no other."""
        self._are_all_doubtful = False
        if not self._follows(vhost):
            return
        listed = None if found is None else tuple(found)
        before = self._by_queue.get(vhost)
        if listed:
            self._take(vhost, Counter(_below(vhost, listed)), now)
        self._count(vhost)
        after = self._by_queue[vhost]
        for of_vhost, queue in tuple(self._watchers):
            if of_vhost == vhost and (before is None or before[queue] != after[queue]):
                self._wake(vhost, queue)

    def _take(self, vhost: str, listed: Counter[ConsumerOf], now: float) -> None:
        touched = self._touched[vhost] = {
            below: at for below, at in self._touched[vhost].items() if now - at < LATE
        }  # fmt: skip
        known = self._known.get(vhost, Counter())
        kept = Counter({below: count for below, count in known.items() if below in touched})
        now_known = self._known[vhost] = kept + Counter({each: n for each, n in listed.items() if each not in touched})
        self._to_check = {each for each in self._to_check if each.vhost != vhost or each in touched}
        # The list may still have what has gone: only one that lacks it, or a later one, settles that.
        self._doubtful = {
            below: since
            for below, since in self._doubtful.items()
            if below.vhost != vhost or (now - since < LATE and now_known[below] >= known[below])
        }

    def _count(self, vhost: str) -> None:
        by_queue: Counter[str] = Counter()
        for below, count in self._known.get(vhost, Counter()).items():
            by_queue[below.queue] += count
        self._by_queue[vhost] = by_queue

    def _wake(self, vhost: str, queue: str) -> None:
        for wake in self._watchers.get((vhost, queue), ()):
            wake()


def _below(vhost: str, listed: Iterable[ConsumerAnswer]) -> Iterator[ConsumerOf]:
    for each in listed:
        name = each["queue"].get("name")
        # Those that were connected to a node that is down stay in the list of brokers since 3.13 for minutes.
        is_there = bool(each.get("channel_details", True))
        if is_there and isinstance(name, str) and _is_below(each.get("arguments")):
            yield ConsumerOf(vhost, name, each["consumer_tag"], is_below=True)


def _is_below(arguments: Any) -> bool:
    """True if the arguments have a priority below 0. Events hold them as text in Erlang's syntax."""
    if isinstance(arguments, Mapping):
        priority = arguments.get("x-priority")
        return isinstance(priority, int | float) and priority < 0
    texts = arguments if isinstance(arguments, list) else []
    found = (_PRIORITY.fullmatch(text) for text in texts if isinstance(text, str))
    return any(int(each[1]) < 0 for each in found if each is not None)


EVENTS: Final = ("consumer.*", CHANNEL_CLOSED)
READ_AGAIN: Final = 25.0  # so that nothing stays wrong for 30 seconds
READ_ALONE: Final = 5.0  # without events
SETTLE: Final = 0.02

log = structlog.get_logger()


class ConsumerFollower:
    """Keeps `consumers` up to date while queues are watched; `read` requests those of a vhost from the HTTP API."""

    def __init__(
        self, consumers: Consumers, *, listener: Listener, read: Callable[[str], Awaitable[list[ConsumerAnswer]]]
    ) -> None:
        self._consumers = consumers
        self._listener = listener
        self._read = read
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Keep the consumers up to date until cancelled."""
        await self._consumers.is_watched.wait()
        await run_until_first(self._listen(), self._read_all())

    async def _listen(self) -> None:
        loop, consumers = self._loop, self._consumers

        def begin() -> None:
            consumers.hears(True, loop.time())
            consumers.must_read.set()  # for what changed while nobody listened

        await follow(
            self._listener,
            EVENTS,
            lambda event: consumers.heard(event, loop.time()),
            on_begin=begin,
            on_end=lambda: consumers.hears(False, loop.time()),
        )

    async def _read_all(self) -> None:
        """Read the lists at once, and again when a list can't be late any more; later at intervals."""
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
            is_again = await self._is_to_read(rest)

    async def _is_to_read(self, seconds: float) -> bool:
        """Wait until the next reading is due, at most so many seconds; True if it was requested."""
        until = self._loop.time() + seconds
        while (left := until - self._loop.time()) > 0:
            if await self._is_asked_for(min(left, LATE)):
                return True
            if self._consumers.must_check():
                break
        return False

    async def _is_asked_for(self, seconds: float) -> bool:
        new = self._consumers.must_read
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
