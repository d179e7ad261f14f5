"""One look for all links of a connection, against a fake socket; and bindings in turn, so many in a second."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import ceil
from typing import cast

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import ChannelPool, Shared
from agent.amqp.wire import frames, methods
from agent.amqp.wire.connection import WireConnection
from agent.amqp.wire.login import Terms
from agent.amqp.wire.methods import Call
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import Mechanism, parse
from agent.links.exchange.builder import Builder
from agent.links.exchange.deletion_monitor import (
    ASSERTED_PER_SECOND,
    ASSERTED_WITHIN,
    DOUBTFUL_PER_SECOND,
    DOUBTFUL_WITHIN,
    FEW,
    INTERNAL_EVERY,
    LOOK_EVERY,
    MANY_EVERY,
    MANY_INTERNAL_EVERY,
    PLACED_AT_ONCE,
    DeletionMonitor,
    Rounds,
)
from agent.tasks import UnexpectedErrors
from tests.unit.amqp.wire.link import Wire, feed, opened, turn


class Link:
    """What a monitor sees of a link, and of what it keeps upstream."""

    def __init__(self, name: str, assertable: int = 1) -> None:
        self.building = cast("Builder", self)
        self.canary: str | None = f"canary {name}"
        self.internal: str | None = f"internal {name}"
        self.assertable = assertable
        self.doubtful = 0
        self.missing: list[str] = []
        self.asserted = 0
        self.is_native = False
        self.type_is_known = True
        self.was_told_of_type = False
        self.lacks_canary = False
        self.placed = 0

    def place_canary(self) -> None:
        self.placed += 1
        self.lacks_canary = False

    def on_missing(self, name: str) -> None:
        self.missing.append(name)

    def on_unknown_type(self) -> None:
        self.was_told_of_type = True

    def assert_some(self, count: int) -> None:
        self.asserted += count
        self.doubtful = max(0, self.doubtful - count)

    async def is_type_known(self) -> bool:
        return self.type_is_known


class Broker:
    """Answers looks; what it lacks is in `missing`."""

    def __init__(self, wire: WireConnection, socket: Wire) -> None:
        self.missing: set[str] = set()
        self.asked: list[str] = []
        self._wire = wire
        self._socket = socket

    async def look(self, monitor: DeletionMonitor, times: int = 1) -> None:
        for _ in range(times):
            looking = asyncio.create_task(monitor.look(LOOK_EVERY))
            while not looking.done():
                await turn()
                self._answer(self._socket.taken())
            await looking

    def _answer(self, data: bytes) -> None:
        at, closed = 0, set[int]()
        while at < len(data):
            _, number, size = frames.PREFIX.unpack_from(data, at)
            call = methods.decode(data[at + 7 : at + 7 + size])
            at += size + frames.OVERHEAD
            if number not in closed and not self._answered(number, call):
                closed.add(number)

    def _answered(self, number: int, call: Call) -> bool:
        match call.method:
            case methods.CHANNEL_OPEN:
                self._say(number, methods.CHANNEL_OPEN_OK.encode())
            case methods.CHANNEL_CLOSE:
                self._say(number, methods.CHANNEL_CLOSE_OK.encode())
            case methods.EXCHANGE_DECLARE if call["exchange"] in self.missing:
                text = f"NOT_FOUND - no exchange '{call['exchange']}' in vhost '/'"
                self._say(number, methods.CHANNEL_CLOSE.encode(code=404, text=text))
                return False
            case methods.EXCHANGE_DECLARE:
                assert call["passive"]
                self.asked.append(call["exchange"])
                if not call["nowait"]:
                    self._say(number, methods.EXCHANGE_DECLARE_OK.encode())
        return True

    def _say(self, number: int, payload: bytes) -> None:
        feed(self._wire, frames.frame(frames.METHOD, number, payload))


async def scene() -> tuple[Broker, DeletionMonitor]:
    wire, socket = await opened()
    terms = Terms("upstream u h:5672", "/", "u", Secret("p"), (Mechanism.PLAIN,), 0)
    connection = Connection(parse("amqp://h"), wire, terms)
    return Broker(wire, socket), DeletionMonitor(Shared(connection, ChannelPool(connection)), UnexpectedErrors())


@contextmanager
def watched(monitor: DeletionMonitor, *links: Link) -> Iterator[None]:
    with ExitStack() as watching:
        for link in links:
            watching.enter_context(monitor.watching(link))
        yield


async def test_links_hear_of_what_is_missing_of_theirs() -> None:
    broker, monitor = await scene()
    links = [Link(str(number)) for number in range(50)]
    with watched(monitor, *links):
        await broker.look(monitor)
        assert broker.asked == [link.canary for link in links]
        broker.missing = {"canary 7", "canary 8", "canary 49"}
        await broker.look(monitor)
        assert [link.missing for link in links if link.missing] == [["canary 7"], ["canary 8"], ["canary 49"]]


async def test_internal_exchanges_are_asked_for_less_often() -> None:
    broker, monitor = await scene()
    link = Link("a")
    with watched(monitor, link):
        await broker.look(monitor, INTERNAL_EVERY)
        assert broker.asked == ["canary a"] * INTERNAL_EVERY + ["internal a"]
        broker.missing = {"internal a"}
        await broker.look(monitor, INTERNAL_EVERY)
        assert link.missing == ["internal a"]


async def test_of_many_links_each_has_its_turn_less_often() -> None:
    broker, monitor = await scene()
    links = [Link(str(number)) for number in range(FEW + 1)]
    with watched(monitor, *links):
        await broker.look(monitor)
        assert len(broker.asked) < len(links)
        await broker.look(monitor, MANY_INTERNAL_EVERY - 1)
    rounds = MANY_INTERNAL_EVERY // MANY_EVERY
    assert sorted(broker.asked) == sorted(
        [*(link.canary or "" for link in links)] * rounds + [link.internal or "" for link in links]
    )


async def test_a_link_without_canary_and_with_a_long_name_is_not_asked_for() -> None:
    broker, monitor = await scene()
    link = Link("a")
    link.canary = link.internal = None
    with watched(monitor, link):
        await broker.look(monitor, INTERNAL_EVERY)
    assert broker.asked == []


async def test_canaries_are_placed_in_turn() -> None:
    broker, monitor = await scene()
    links = [Link(str(number)) for number in range(PLACED_AT_ONCE + 1)]
    for link in links[:-1]:
        link.lacks_canary = True
    with watched(monitor, links[-1], *links[:-1]):
        await broker.look(monitor)
        assert [link.placed for link in links] == [1] * PLACED_AT_ONCE + [0]
        for link in links:
            link.lacks_canary = True
        await broker.look(monitor)
        assert sum(link.placed for link in links) == 2 * PLACED_AT_ONCE


async def test_one_link_asks_for_the_plugins_type_and_all_of_that_type_hear() -> None:
    broker, monitor = await scene()
    links = [Link(str(number)) for number in range(3)]
    links[1].is_native = links[2].is_native = True
    with watched(monitor, *links):
        await broker.look(monitor)
        links[1].type_is_known = False
        links[0].type_is_known = False  # it isn't of that type
        await broker.look(monitor)
    assert [link.was_told_of_type for link in links] == [False, True, True]


async def test_very_many_bindings_are_asserted_slowly() -> None:
    broker, monitor = await scene()
    link = Link("a", assertable=20_000)
    with watched(monitor, link):
        await broker.look(monitor, 10)
    assert link.asserted == 10 * LOOK_EVERY


async def test_bindings_in_doubt_are_asserted_within_a_short_time_and_of_very_many_a_bounded_number() -> None:
    broker, monitor = await scene()
    few, some, many = (Link(name, assertable=0) for name in ("few", "some", "many"))
    few.doubtful, some.doubtful = 7, 5_000
    with watched(monitor, few, some):
        await broker.look(monitor, ceil(DOUBTFUL_WITHIN / LOOK_EVERY))
    assert (few.doubtful, some.doubtful) == (0, 0)
    many.doubtful = 100_000
    with watched(monitor, many):
        await broker.look(monitor, 10)
    assert many.asserted <= 11 * LOOK_EVERY * DOUBTFUL_PER_SECOND


async def test_looking_begins_with_the_first_link_and_ends_with_the_last() -> None:
    def looks() -> list[str]:
        return [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "look at canaries"]

    _, monitor = await scene()
    with watched(monitor, Link("a")):
        with watched(monitor, Link("b")):
            assert len(looks()) == 1
        assert len(looks()) == 1
    await turn()
    await turn()
    assert looks() == []


def served(rounds: Rounds[str], seconds: float, step: float = 3.0) -> Counter[str]:
    found: Counter[str] = Counter()
    for _ in range(int(seconds / step)):
        for member, count in rounds.due(step):
            found[member] += count
    return found


def of(sizes: dict[str, int]) -> Rounds[str]:
    rounds = Rounds(sizes.__getitem__)
    for member in sizes:
        rounds.add(member)
    return rounds


def test_few_come_round_once_in_the_time() -> None:
    found = served(of({"a": 20, "b": 40}), ASSERTED_WITHIN)
    assert found["a"] in range(19, 21)
    assert found["b"] in range(39, 41)


def test_very_many_cost_no_more_than_the_rate_and_all_have_their_turn() -> None:
    sizes = {"many": 20_000, "few": 1}
    rounds = of(sizes)
    assert served(rounds, ASSERTED_WITHIN)["many"] <= ASSERTED_WITHIN * ASSERTED_PER_SECOND + 1
    found = served(rounds, 20_002 / ASSERTED_PER_SECOND)
    assert found["few"] >= 1


def test_a_member_that_leaves_in_its_turn_takes_nothing_of_the_next() -> None:
    sizes = {"a": 600, "b": 600}
    rounds = of(sizes)
    served(rounds, 30)
    rounds.remove("a")
    assert set(served(rounds, 2 * ASSERTED_WITHIN)) == {"b"}
    assert list(rounds) == ["b"]


def test_nobody_and_nothing() -> None:
    assert Rounds[str](len).due(3.0) == []
    assert served(of({"a": 0, "b": 0}), ASSERTED_WITHIN) == Counter()
    assert served(of({"a": 0, "b": 600}), 30)["b"] > 0
