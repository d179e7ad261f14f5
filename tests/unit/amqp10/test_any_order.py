"""Whatever decent peers do, and in whatever order: one outcome for each message, and no more than is allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.amqp10 import performatives
from tests.unit.amqp.wire.link import turn
from tests.unit.amqp10.peer import Source, Target, message, transfer

OUTCOMES = {
    "accepted": ("basic.ack", performatives.ACCEPTED.encode()),
    "rejected": ("basic.nack", performatives.REJECTED.encode()),
    "released": ("basic.nack", performatives.RELEASED.encode()),
    "modified": ("basic.nack", performatives.MODIFIED.encode()),
}
FRAME = 512


class Taking:
    """A peer that takes messages, and checks that it gets no more than it allows."""

    def __init__(self, target: Target, handle: int) -> None:
        self.target = target
        self.handle = handle
        self.limit = self.count = 0  # deliveries: up to which they may come, and how many have
        self.window = self.came = 0  # the same of transfers
        self.bodies: list[bytes] = []
        self.is_midway = False
        self.open: list[int] = []
        self.wanted: dict[int, str] = {}

    def hear(self) -> None:
        for said in self.target.peer.heard():
            if said.name == "flow":
                assert (said["link_credit"] or 0) >= 0
                if said["handle"] is not None and said["link_credit"] == 0:  # drained
                    self.count = max(self.count, said["delivery_count"])
                continue
            if said.name == "disposition":
                continue
            assert said.name == "transfer"
            self.came += 1
            assert self.came <= self.window, "more transfers than the window allows"
            if not self.is_midway:
                assert said["delivery_id"] == len(self.bodies)
                self.count += 1
                assert self.count <= self.limit, "more messages than there is credit for"
                self.bodies.append(b"")
            self.bodies[-1] += said.payload
            self.is_midway = said["more"]
            if not said["more"]:
                self.open.append(len(self.bodies) - 1)

    def flow(self, credit: int, window: int, *, drain: bool = False, echo: bool = False) -> None:
        self.limit, self.window = self.count + credit, self.came + window
        self.target.peer.flow(
            handle=self.handle,
            delivery_count=self.count,
            link_credit=credit,
            window=window,
            next_incoming=self.came,
            drain=drain,
            echo=echo,
        )
        self.hear()

    def session_flow(self, window: int) -> None:
        self.window = self.came + window
        self.target.peer.flow(window=window, next_incoming=self.came, echo=True)
        self.hear()

    async def dispose(self, first: int, count: int, outcome: str, *, settled: bool) -> None:
        """A run of ids that are open."""
        if not self.open:
            return
        first %= len(self.open)
        run = [self.open[first]]
        while len(run) < count and run[-1] + 1 in self.open:
            run.append(run[-1] + 1)
        self.open = [each for each in self.open if each not in run]
        name, state = OUTCOMES[outcome]
        self.wanted |= {each + 1: name for each in run}
        last = run[-1] if len(run) > 1 else None
        await self.target.dispose(run[0], last, state=state, settled=settled)
        self.hear()


handles = st.sampled_from([0, 1, 255])  # of the peer: each side numbers links by itself
sizes = st.sampled_from([0, 1, 100, FRAME, 3 * FRAME])
Step = Callable[[Taking], Any]
takings: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda size: lambda it: it.target.publish(bytes(size)), sizes),
    st.builds(
        lambda credit, window, drain, echo: lambda it: it.flow(credit, window, drain=drain, echo=echo),
        st.integers(0, 5),
        st.integers(0, 8),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(lambda window: lambda it: it.session_flow(window), st.integers(0, 8)),
    st.builds(
        lambda first, count, outcome, settled: lambda it: it.dispose(first, count, outcome, settled=settled),
        st.integers(0, 20),
        st.integers(1, 5),
        st.sampled_from(sorted(OUTCOMES)),
        st.booleans(),
    ),
)


@given(handles, st.lists(takings, max_size=60))
def test_each_publish_gets_its_outcome_once(handle: int, steps: list[Step]) -> None:
    async def scenario() -> None:
        target = await Target.made(
            credit=None, window=0, attach={"handle": handle}, open_with={"max_frame_size": FRAME}
        )
        it = Taking(target, handle)
        for step in steps:
            done = step(it)
            if asyncio.iscoroutine(done):
                await done
            it.hear()
            assert {tag: it.wanted[tag] for tag in target.settled} == target.settled
        it.flow(1_000, 1_000)
        assert len(it.bodies) == target.published and not it.is_midway
        while it.open:
            await it.dispose(0, 1_000, "accepted", settled=True)
        assert target.settled == it.wanted
        assert len(it.wanted) == target.published
        assert not target.peer.wire.closed.done()

    asyncio.run(scenario())


class Giving:
    """A peer that gives messages as it may, and looks at what is settled."""

    def __init__(self, source: Source, prefetch: int, handle: int) -> None:
        self.source = source
        self.handle = handle
        self.prefetch = prefetch
        self.highest = prefetch
        self.next = 0
        self.count = self.limit = 0
        self.open: set[int] = set()
        self.drains = False
        self.accepted: set[int] = set()
        self.released: set[int] = set()
        self.acknowledged: set[int] = set()  # tags that the data path has settled
        self.consumers = 1
        self.hear()

    def hear(self) -> None:
        for said in self.source.peer.heard():
            if said.name == "flow" and said["handle"] is not None:
                self.limit = said["delivery_count"] + said["link_credit"]
                credit = self.limit - self.count
                assert credit <= self.highest
                assert said["drain"] or not credit or credit + len(self.open) <= self.highest
                self.drains = self.drains or said["drain"]
            elif said.name == "disposition":
                assert said["settled"]
                ids = {each for each in self.open if said["first"] <= each <= said["last"]}
                assert said["first"] in self.open or said["last"] in self.open
                self.open -= ids
                kind = self.accepted if said["state"].performative is performatives.ACCEPTED else self.released
                assert not ids & (self.accepted | self.released), "settled twice"
                kind |= ids

    async def deliver(self, count: int, parts: int) -> None:
        for _ in range(min(count, self.limit - self.count)):
            body = message(b"%d" % self.next)
            cut = max(1, len(body) // parts)
            pieces = [body[at : at + cut] for at in range(0, len(body), cut)]
            number = self.next
            self.source.peer.feed(
                b"".join(
                    transfer(number, piece, more=at < len(pieces) - 1, handle=self.handle)
                    for at, piece in enumerate(pieces)
                )
            )
            self.open.add(number)
            self.next += 1
            self.count += 1
        await self.source.peer.is_read()
        self.hear()

    async def drained(self) -> None:
        """Gives back what credit it has."""
        if self.drains:
            self.drains, self.count = False, self.limit
            self.source.peer.flow(handle=self.handle, delivery_count=self.count, link_credit=0, drain=True)
            await turn()
        self.hear()

    async def settle(self, which: int, *, multiple: bool, is_accepted: bool) -> None:
        left = [tag for tag in range(1, len(self.source.came) + 1) if tag not in self.acknowledged]
        if left:
            tag = left[which % len(left)]
            self.source.settle(tag, multiple=multiple, is_accepted=is_accepted)
            self.acknowledged |= set(range(1, tag + 1)) if multiple else {tag}
        self.hear()

    async def replace(self, prefetch: int) -> None:
        if self.drains:  # one at a time
            await self.drained()
        self.source.cancel()
        self.prefetch, self.highest = prefetch, max(self.highest, prefetch)
        self.consumers += 1
        self.source.consume(f"tag {self.consumers}", prefetch=prefetch)
        await turn()
        self.hear()


Move = Callable[[Giving], Any]
moves: st.SearchStrategy[Move] = st.one_of(
    st.builds(lambda count, parts: lambda it: it.deliver(count, parts), st.integers(1, 12), st.integers(1, 4)),
    st.builds(
        lambda which, multiple, accepted: lambda it: it.settle(which, multiple=multiple, is_accepted=accepted),
        st.integers(0, 20),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(lambda prefetch: lambda it: it.replace(prefetch), st.integers(1, 12)),
    st.just(lambda it: it.drained()),
)


@given(st.integers(1, 12), handles, st.lists(moves, max_size=60))
def test_each_delivery_is_settled_once_and_no_more_come_than_the_prefetch(
    prefetch: int, handle: int, steps: list[Move]
) -> None:
    async def scenario() -> None:
        source = await Source.made(prefetch=prefetch, attach={"handle": handle})
        it = Giving(source, prefetch, handle)
        for step in steps:
            await step(it)
            assert not source.peer.wire.closed.done()
        assert source.bodies == [message(b"%d" % number) for number in range(it.next)]
        assert it.accepted | it.released == {tag - 1 for tag in it.acknowledged}
        await it.drained()
        source.settle(0, multiple=True)
        it.hear()
        assert not it.open
        assert it.limit - it.count <= it.highest
        assert it.limit > it.count, "it gives no more credit"

    asyncio.run(scenario())
