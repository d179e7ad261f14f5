"""A queue downstream that is full, more messages for it than can be held, and others among them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from agent.amqp.data.held import HeldBuffers
from agent.amqp.data.quarantined import Captured, Room
from agent.amqp.wire import methods
from agent.core.links.refusals import LONGEST
from tests.unit.amqp.wire.link import Link, Sent, turn

FULL, OK = "full", "ok"
LIMIT = 20_000


class Brokers:
    """The source gives back to the front what it is given back; the downstream refuses what is for the full queue."""

    def __init__(self, link: Link, *, prefetch: int) -> None:
        self.link = link
        self.prefetch = prefetch
        self.queue: deque[tuple[int, str, bytes, bool]] = deque()  # with whether it was delivered before
        self.sent: dict[int, tuple[int, str, bytes, bool]] = {}  # by tag
        self.last = 0
        self.numbers = 0
        self.taken: list[int] = []
        self.is_full = True
        self.aside: set[int] = set()

    def publish(self, key: str, size: int) -> None:
        number = len(self.queue) + len(self.sent) + len(self.taken)
        self.queue.append((number, key, b"%d " % number + bytes(size), False))

    async def run(self, seconds: float, *, step: float = 0.5) -> None:
        until = self.link.clock.now + seconds
        while self.link.clock.now < until:
            self.link.clock.pass_by(step)
            await turn()
            await self.exchange()

    async def exchange(self) -> None:
        """Until nothing moves any more."""
        while True:
            moved = await self._answer()
            self._hear()
            moved += await self._deliver()
            if not moved:
                return

    async def _deliver(self) -> int:
        count = min(self.prefetch + self.link.target.held_unpublishable - len(self.sent), len(self.queue), 50)
        batch = []
        for _ in range(count):
            message = self.queue.popleft()
            self.last += 1
            self.sent[self.last] = message
            _, key, body, again = message
            batch.append(Sent(self.last, key, body=body, redelivered=again))
        if batch:
            await self.link.deliver(*batch)
        return max(count, 0)

    async def _answer(self) -> int:
        published = self.link.published()
        for got in published:
            self.numbers += 1
            refuses = self.is_full and got.key == FULL
            if not refuses:
                self.taken.append(int(got.body.split(b" ")[0]))
            method = methods.BASIC_NACK if refuses else methods.BASIC_ACK
            await self.link.answer(method, delivery_tag=self.numbers)
        return len(published)

    def _hear(self) -> None:
        back = []
        for method in self.link.settled():
            told: dict[str, Any] = dict(method)
            tag = told["delivery_tag"]
            assert tag in self.sent, "a broker closes the channel of whoever settles twice"
            for each in [each for each in self.sent if each <= tag] if told["multiple"] else [tag]:
                number, key, body, _ = self.sent.pop(each)
                if method.name == "Basic.Nack":
                    back.append((number, key, body, True))
                else:
                    assert number in self.taken or number in self.aside, "nothing is acknowledged that isn't safe"
        self.queue.extendleft(sorted(back, reverse=True))


async def made(*, prefetch: int, after: float | None = None) -> Brokers:
    return Brokers(
        await Link.made(held=HeldBuffers(LIMIT, Room(3 * LIMIT)), give_up_after=after, max_hops=2), prefetch=prefetch
    )


@given(
    kinds=st.lists(st.tuples(st.sampled_from([FULL, OK]), st.sampled_from([0, 500, 3_000, LIMIT])), max_size=120),
    prefetch=st.integers(1, 60),
)
def test_others_flow_and_all_get_through_once_when_there_is_room(kinds: list[tuple[str, int]], prefetch: int) -> None:
    async def scene() -> None:
        brokers = await made(prefetch=prefetch)
        for key, size in kinds:
            brokers.publish(key, size)
        await brokers.run(60)
        good = [number for number, (key, _) in enumerate(kinds) if key == OK]
        assert brokers.taken == good, "in their order, and none waits for what is refused"
        assert brokers.link.target.refused.count == len(kinds) - len(good)
        brokers.is_full = False
        await brokers.run(60)
        assert sorted(brokers.taken) == list(range(len(kinds)))
        assert not brokers.sent and not brokers.queue
        assert brokers.link.target.trouble == ""
        assert not brokers.link.upstream.closed.done()

    asyncio.run(scene())


def test_while_all_is_refused_few_come_again() -> None:
    async def scene() -> None:
        brokers = await made(prefetch=100)
        for _ in range(2_000):
            brokers.publish(FULL, 500)
        await brokers.run(120)
        assert brokers.link.counts.redelivered < 400
        before = brokers.link.counts.redelivered
        await brokers.run(10 * LONGEST)
        assert brokers.link.counts.redelivered - before <= 16 * 11
        brokers.is_full = False
        await brokers.run(2 * LONGEST, step=0.1)
        assert len(brokers.taken) == 2_000, "soon after there is room"

    asyncio.run(scene())


@pytest.mark.parametrize("others_pass", [True, False])
def test_all_of_them_go_to_the_quarantine_while_others_pass_and_only_then(*, others_pass: bool) -> None:
    async def scene() -> None:
        brokers = await made(prefetch=100, after=60.0)
        aside = brokers.aside

        def take(captured: Captured) -> bool:
            brokers.link.target.quarantine_started(captured.tag, captured.reason)
            aside.add(int(captured.body.split(b" ")[0]))
            asyncio.get_running_loop().call_soon(brokers.link.target.quarantine_done, captured.tag)
            return True

        brokers.link.target.refused.hand_over = take
        for _ in range(500):
            brokers.publish(FULL, 500)
        for at in range(200):
            if others_pass:
                brokers.publish(OK, 0)
            await brokers.run(1)
            assert at > 55 or not aside, "not before its time"
        assert len(aside) == (500 if others_pass else 0)
        assert brokers.link.target.refused.count == (0 if others_pass else 500)

    asyncio.run(scene())
