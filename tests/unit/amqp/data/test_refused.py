"""What the downstream refuses is published again from what is held, and what never gets through is handed over."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from agent.amqp.data.held import HeldBuffers
from agent.amqp.data.quarantined import MOST_NOTED, Captured, Room
from agent.amqp.data.refused import MOST_RETURNS
from agent.amqp.data.splice import WHOLE
from agent.amqp.wire import methods
from agent.amqp.wire.properties import CONTENT_TYPE, HEADERS, USER_ID, Properties
from agent.core import fields
from agent.core.links.refusals import FEW, LONGEST, SHORTEST, SPARINGLY
from agent.core.rules.hops import RECEIVED_FROM, Site, received_entry
from tests.unit.amqp.wire.link import Link, Sent, feed, turn, with_table

AFTER = 60.0
ELSEWHERE = Site("elsewhere", "/")


class Scene:
    """A link whose refused messages are held, and what it hands over."""

    def __init__(self, link: Link, held: HeldBuffers, *, has_room: bool) -> None:
        self.link = link
        self.held = held
        self.handed: list[Captured] = []
        self.refused = link.target.refused
        self.refused.hand_over = lambda captured: self._take(captured, has_room=has_room)
        self.last = 0
        self.numbers = 0

    @classmethod
    async def made(
        cls,
        *,
        after: float | None = AFTER,
        limit: int = 8 * WHOLE,
        has_room: bool = True,
        most_noted: int = MOST_NOTED,
        returns_are_counted: bool = False,
    ) -> Scene:
        held = HeldBuffers(limit, Room(2 * limit, most_noted=most_noted))
        link = await Link.made(held=held, give_up_after=after, returns_are_counted=returns_are_counted, max_hops=2)
        return cls(link, held, has_room=has_room)

    def _take(self, captured: Captured, *, has_room: bool) -> bool:
        if has_room:
            self.link.target.quarantine_started(captured.tag, captured.reason)
            self.handed.append(captured)
        return has_room

    async def deliver(self, *messages: Sent) -> None:
        await self.link.deliver(*messages)
        self.numbers += len(messages)
        self.link.published()

    async def answer(self, number: int, *, taken: bool, multiple: bool = False) -> None:
        method = methods.BASIC_ACK if taken else methods.BASIC_NACK
        await self.link.answer(method, delivery_tag=number, multiple=multiple)

    async def wait(self, seconds: float) -> list[bytes]:
        """The bodies that are published meanwhile."""
        self.link.clock.pass_by(seconds)
        await turn()
        await turn()
        found = [got.body for got in self.link.published()]
        self.numbers += len(found)
        return found

    async def others_pass(self, tag: int) -> None:
        await self.deliver(Sent(tag, body=b"other"))
        await self.answer(self.numbers, taken=True)


async def test_an_answer_after_the_end_changes_nothing() -> None:
    """Until its channel is closed the downstream may still answer."""
    scene = await Scene.made()
    await scene.deliver(Sent(1, body=b"no"))
    await scene.answer(1, taken=False)
    began, tag, again = scene.link.clock.now, 1, 0
    while scene.link.clock.now - began < AFTER or not again:
        if again:
            await scene.answer(again, taken=False)
        again = scene.numbers if await scene.wait(LONGEST) else 0
        tag += 1
        await scene.others_pass(tag)
    scene.link.target.refused.release()
    await scene.answer(again, taken=False)
    assert not scene.link.downstream.closed.done()
    assert scene.handed == []


async def test_it_is_published_again_with_growing_pauses_and_never_given_back() -> None:
    scene = await Scene.made(after=None)
    await scene.deliver(Sent(1, body=b"m"), Sent(2, body=b"n"))
    await scene.answer(1, taken=False)
    await scene.answer(2, taken=True)
    waited: list[float] = []
    for _ in range(11):
        began = scene.link.clock.now
        while not await scene.wait(0.4 if waited[3:] else SHORTEST):
            pass
        waited.append(scene.link.clock.now - began)
        await scene.answer(scene.numbers, taken=False)
    expected = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, LONGEST, LONGEST, LONGEST]
    assert waited == pytest.approx(expected, abs=0.5)
    assert [method.name for method in scene.link.settled()] == ["Basic.Ack"], "what follows"
    assert re.match("1 refused by the destination", scene.link.target.trouble)
    await scene.wait(LONGEST + SHORTEST)
    await scene.answer(scene.numbers, taken=True)
    assert [dict(method)["delivery_tag"] for method in scene.link.settled()] == [1]
    assert (scene.link.target.trouble, scene.link.counts.forwarded, scene.handed) == ("", 2, [])
    assert scene.held.size == 0


async def test_confirms_set_no_timers_while_nothing_can_be_published_again() -> None:
    """The downstream has the beginning of a large message, and confirms what it got before."""
    scene = await Scene.made()
    await scene.deliver(*(Sent(tag, body=b"m") for tag in range(1, 50)))
    await scene.answer(1, taken=False)
    scene.link.target.streams(midway=True)
    for number in range(2, 50):
        assert await scene.wait(SHORTEST / 10) == []
        await scene.answer(number, taken=True)
        assert scene.link.clock.timers == 1
    scene.link.target.streams(midway=False)
    assert await scene.wait(SHORTEST) == [b"m"]


async def test_refusals_set_one_timer_for_all_while_nothing_can_be_published_again() -> None:
    scene = await Scene.made()
    await scene.deliver(*(Sent(tag, body=b"m") for tag in range(1, 50)))
    scene.link.target.streams(midway=True)
    for number in range(1, 50):
        await scene.answer(number, taken=False)
        assert await scene.wait(SHORTEST / 10) == []
        assert scene.link.clock.timers <= 10, "those that were set before run out"
    scene.link.target.streams(midway=False)
    assert await scene.wait(SHORTEST) == [b"m"] * 49


async def test_nothing_is_given_up_while_all_is_refused() -> None:
    scene = await Scene.made()
    await scene.deliver(Sent(1, body=b"a"), Sent(2, body=b"b"))
    await scene.answer(2, taken=False, multiple=True)
    for _ in range(50):
        tried = await scene.wait(LONGEST)
        assert tried in ([], [b"a", b"b"])
        if tried:
            await scene.answer(scene.numbers, taken=False, multiple=True)
    assert scene.handed == []


async def test_it_is_given_up_after_a_time_while_others_pass() -> None:
    scene = await Scene.made()
    await scene.deliver(Sent(1, body=b"m", properties=with_table(("a", fields.text("b")))))
    await scene.answer(1, taken=False)
    began, tag = scene.link.clock.now, 1
    while not scene.handed:
        if await scene.wait(0.5):
            await scene.answer(scene.numbers, taken=False)
        tag += 1
        await scene.others_pass(tag)
    assert scene.link.clock.now - began == pytest.approx(AFTER, abs=1.0)
    [captured] = scene.handed
    assert (captured.tag, captured.reason, captured.body) == (1, "refused", b"m")
    assert captured.delivery == (b"upstream exchange", b"key", False)
    assert Properties.read(captured.properties) == with_table(("a", fields.text("b")))
    scene.link.target.quarantine_done(1)
    assert scene.link.counts.quarantined == {"refused": 1}
    assert (scene.held.size, scene.link.target.trouble) == (0, "")


async def test_never_is_never() -> None:
    scene = await Scene.made(after=None)
    await scene.deliver(Sent(1, body=b"m"))
    await scene.answer(1, taken=False)
    for tag in range(2, 50):
        if await scene.wait(LONGEST):
            await scene.answer(scene.numbers, taken=False)
        await scene.others_pass(tag)
    assert scene.handed == []


@pytest.mark.parametrize("has_room", [True, False])
async def test_what_can_not_be_put_into_the_quarantine_is_tried_on(*, has_room: bool) -> None:
    scene = await Scene.made(after=1.0, has_room=has_room)
    await scene.deliver(Sent(1, body=b"m"))
    await scene.answer(1, taken=False)
    for tag in range(2, 40):
        if await scene.wait(0.5):
            await scene.answer(scene.numbers, taken=False)
        await scene.others_pass(tag)
        if has_room and scene.link.target.confirms.held and scene.handed:
            scene.link.target.quarantine_failed(1, 0, "no permission")
            assert "can't be put into the quarantine: no permission" in scene.link.target.trouble
            scene.handed.clear()
    assert scene.link.target.refused.count == 1
    await scene.wait(LONGEST)
    await scene.answer(scene.numbers, taken=True)
    assert scene.link.target.refused.count == 0


async def test_a_queue_that_drains_slowly_takes_all_in_their_order() -> None:
    """Each round one gets through; the last waits for longer than the time after which messages are given up."""
    scene = await Scene.made(after=20.0)
    count = 6
    await scene.deliver(*(Sent(tag, body=b"%d" % tag) for tag in range(1, count + 1)))
    await scene.answer(count, taken=False, multiple=True)
    taken: list[bytes] = []
    tag, pause = count, 0
    while len(taken) < count:
        tried = await scene.wait(1.0)
        first = scene.numbers - len(tried) + 1
        if tried:
            pause += 1
            takes = pause % 6 == 0
            if takes:
                taken.append(tried[0])
                await scene.answer(first, taken=True)
            if len(tried) > takes:
                await scene.answer(scene.numbers, taken=False, multiple=True)
        tag += 1
        await scene.others_pass(tag)
    assert taken == [b"%d" % tag for tag in range(1, count + 1)]
    assert scene.handed == []


async def test_many_are_tried_a_few_bytes_at_a_time() -> None:
    scene = await Scene.made(limit=32 * WHOLE)
    bodies = [bytes([tag]) * (WHOLE // 2) for tag in range(1, 21)]
    for tag, body in enumerate(bodies, start=1):
        await scene.deliver(Sent(tag, body=body))
    await scene.answer(20, taken=False, multiple=True)
    tried = await scene.wait(SHORTEST)
    assert 0 < len(tried) < 10
    while len(tried) < 20:
        await scene.answer(scene.numbers, taken=True, multiple=True)
        more = [got.body for got in scene.link.published()]
        scene.numbers += len(more)
        assert more
        tried += more
    assert tried == bodies


async def parked(scene: Scene, count: int, *, key: str = "key") -> None:
    """So many messages are refused, of which only the last few are held."""
    for tag in range(scene.numbers + 1, scene.numbers + count + 1):
        await scene.deliver(Sent(tag, key, body=b"%07d" % tag + bytes(1_000)))
    await scene.answer(scene.numbers, taken=False, multiple=True)


async def settled(scene: Scene, seconds: float) -> list[tuple[str, Any]]:
    """What upstream is told meanwhile."""
    await scene.wait(seconds)
    return [(method.name, dict(method)["delivery_tag"]) for method in scene.link.settled()]


async def test_what_is_not_held_goes_back_a_few_at_a_time() -> None:
    scene = await Scene.made(limit=3_000)
    await parked(scene, 500)
    assert await settled(scene, SHORTEST) == [("Basic.Nack", tag) for tag in range(1, FEW + 1)]
    assert (scene.link.target.refused.count, scene.link.target.held_unpublishable) == (500, 500 - FEW - 2), (
        "two are held"
    )
    assert scene.link.counts.given_back == FEW
    again = [Sent(500 + tag, body=b"%07d" % tag + bytes(1_000), redelivered=True) for tag in range(1, FEW + 1)]
    await scene.deliver(*again)
    await scene.answer(scene.numbers, taken=False, multiple=True)
    assert (scene.link.target.refused.count, scene.link.target.held_unpublishable) == (500, 500)


async def test_what_is_not_held_holds_up_nothing_and_is_tried_until_it_gets_through() -> None:
    scene = await Scene.made(limit=3_000)
    await parked(scene, 500)
    left, tag, through = 500, 500, 0
    for _ in range(500):
        returned = sum(name == "Basic.Nack" for name, _ in await settled(scene, 0.1))
        scene.numbers -= len(scene.link.published())
        for _ in range(returned):
            tag += 1
            await scene.deliver(Sent(tag, body=bytes(1_000), redelivered=True))
        through += returned
        await scene.answer(scene.numbers, taken=True, multiple=True)
        left = scene.link.target.refused.count
        if not left:
            break
    assert (left, scene.link.target.trouble) == (0, "")
    assert through > 490, "each of those that weren't held came once more"
    assert scene.link.counts.given_back == through


async def test_what_came_with_another_tag_is_given_up_as_early_as_any() -> None:
    scene = await Scene.made(limit=3_000)
    await parked(scene, 3)
    began = scene.link.clock.now
    assert await settled(scene, SHORTEST) == [("Basic.Nack", 1)]
    await scene.answer(scene.numbers, taken=True, multiple=True)
    scene.link.clock.pass_by(AFTER / 2)
    await scene.deliver(Sent(4, body=b"first" + bytes(1_000), redelivered=True))
    await scene.answer(scene.numbers, taken=False)
    tag = 4
    while not scene.handed:
        if await scene.wait(0.5):
            await scene.answer(scene.numbers, taken=False)
        tag += 1
        await scene.others_pass(tag)
    assert scene.link.clock.now - began == pytest.approx(AFTER, abs=1.0)
    assert [(captured.tag, captured.body[:5]) for captured in scene.handed] == [(4, b"first")]


async def test_what_is_parked_goes_back_where_the_link_pauses_and_is_forgotten_at_its_end() -> None:
    scene = await Scene.made(limit=3_000)
    await parked(scene, 100)
    scene.refused.return_unacknowledged()
    await turn()
    assert sum(method.name == "Basic.Nack" for method in scene.link.settled()) == 98
    assert (scene.refused.waiting, scene.link.target.refused.count) == (2, 100), "two are held"
    await scene.deliver(*(Sent(100 + tag, body=bytes(1_000), redelivered=True) for tag in range(1, 99)))
    await scene.answer(scene.numbers, taken=False, multiple=True)
    assert scene.refused.waiting == 100
    scene.refused.release()
    assert scene.refused.waiting == 2, "of what was parked nothing is known any more"


async def test_of_very_many_that_are_parked_by_all_links_the_others_go_back() -> None:
    scene = await Scene.made(limit=3_000, most_noted=50)
    await parked(scene, 100)
    assert (scene.refused.waiting, scene.refused.count) == (52, 100), "two are held"
    assert [tag for _, tag in await settled(scene, SHORTEST)] == [*range(1, FEW + 1), *range(51, 99)]
    assert (scene.refused.waiting, scene.refused.count) == (50 - FEW, 52), "two are published again"
    scene.refused.release()
    assert scene.held.room.note()


async def test_where_each_return_counts_the_source_is_spared() -> None:
    """What came back often is put aside without being published, since it could not be held when it is refused."""
    scene = await Scene.made(limit=3_000, returns_are_counted=True)
    scene.refused.on_counted_return = scene.link.source.keep_returned
    often = with_table(("x-delivery-count", fields.long(MOST_RETURNS)))
    await parked(scene, 20)
    await scene.wait(LONGEST)
    assert "Basic.Nack" not in [method.name for method in scene.link.settled()]
    assert [name for name, _ in await settled(scene, SPARINGLY)].count("Basic.Nack") == FEW
    await scene.deliver(Sent(21, properties=often, body=b"b", redelivered=True))
    assert scene.link.counts.unpublishable == {"returned_too_often": 1}


async def test_a_link_keeps_no_more_than_it_leaves_to_others() -> None:
    room = Room(40_000)
    held = HeldBuffers(40_000, room)
    link = await Link.made(held=held)
    for tag in range(1, 101):
        await link.deliver(Sent(tag, body=bytes(1_000)))
    await link.answer(methods.BASIC_NACK, delivery_tag=100, multiple=True)
    assert 10_000 < 40_000 - room.left <= 20_000 + 1_100


async def test_nothing_is_written_into_a_large_message() -> None:
    scene = await Scene.made()
    await scene.deliver(Sent(1, body=b"m"))
    await scene.answer(1, taken=False)
    large = scene.link.delivery(Sent(2, body=bytes(3 * WHOLE)))
    feed(scene.link.upstream, large[: 2 * WHOLE])
    await turn()
    scene.link.clock.pass_by(5.0)
    await turn()
    feed(scene.link.upstream, large[2 * WHOLE :])
    await turn()
    assert [len(got.body) for got in scene.link.published()] == [3 * WHOLE]
    assert await scene.wait(1.0) == [b"m"]


async def test_what_the_source_would_drop_soon_is_handed_over_at_once() -> None:
    scene = await Scene.made()
    scene.refused.counts_returns = True
    often, seldom = (with_table(("x-delivery-count", fields.long(count))) for count in (MOST_RETURNS, MOST_RETURNS - 1))
    await scene.deliver(Sent(1, body=b"often", properties=often), Sent(2, body=b"seldom", properties=seldom))
    await scene.answer(2, taken=False, multiple=True)
    assert [captured.body for captured in scene.handed] == [b"often"]


async def test_nothing_is_published_after_the_end() -> None:
    scene = await Scene.made()
    await scene.deliver(Sent(1, body=b"m"))
    await scene.answer(1, taken=False)
    scene.link.target.refused.release()
    assert await scene.wait(LONGEST) == []
    assert scene.held.size == 0


PROPERTIES = [
    Properties(0, ()),
    Properties(HEADERS, ((HEADERS, b"\0\0\0\0"),)),
    Properties(CONTENT_TYPE, ((CONTENT_TYPE, b"\x04text"),)),
    with_table(("a", fields.text("b"))),
    with_table(("a", fields.text("b"))).replaced(((CONTENT_TYPE, b"\x04text"), (0x0020, b"\x01t"))),
    with_table(("a", fields.text("b"))).replaced(((USER_ID, b"\x05guest"),)),
    with_table((RECEIVED_FROM, fields.array(received_entry("u", "x", redelivered=False, upstream=ELSEWHERE)))),
    with_table((RECEIVED_FROM, fields.text("no array"))),
]


@given(
    st.lists(
        st.tuples(st.sampled_from(PROPERTIES), st.booleans(), st.sampled_from([b"", b"b", bytes(200_000)])),
        min_size=1,
        max_size=6,
    )
)
def test_every_message_is_handed_over_as_it_came(messages: list[tuple[Properties, bool, bytes]]) -> None:
    async def run() -> None:
        scene = await Scene.made(after=0.0)
        sent = [
            Sent(tag, f"k.{tag}", properties, body, redelivered=redelivered)
            for tag, (properties, redelivered, body) in enumerate(messages, start=1)
        ]
        await scene.deliver(*sent)
        await scene.answer(len(sent), taken=False, multiple=True)
        for tag in range(len(sent) + 1, len(sent) + 20):
            if await scene.wait(SHORTEST):
                await scene.answer(scene.numbers, taken=False, multiple=True)
            await scene.others_pass(tag)
        for message, captured in zip(sent, scene.handed, strict=True):
            assert captured.delivery[:2] == (b"upstream exchange", message.key.encode())
            assert (captured.properties, captured.body) == (message.properties.write(), message.body)

    asyncio.run(run())
