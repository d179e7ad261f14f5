"""What all links of an agent share, where they are very many."""

from __future__ import annotations

import asyncio

from agent.core.addresses.uri import parse
from agent.links.brokers import (
    CHANGED_AT_ONCE,
    CHANGED_BY_VHOST,
    DEDICATED_AT_ONCE,
    LONGEST_CHANGE,
    Brokers,
    renewed_ends,
)
from agent.links.ends import End, Ends
from tests.unit.amqp.wire.virtual_loop import in_virtual_time


def end(*uris: str, where: str = "upstream origin") -> End:
    return End(where, tuple(map(parse, uris)))


def brokers() -> Brokers:
    return Brokers((), "here", stall_after=30)


async def changing_at_once(asked: list[tuple[End, str]]) -> int:
    """How many of them are let in while none ends."""
    shared, let_in, over = brokers(), 0, asyncio.Event()

    async def change(place: End, vhost: str) -> None:
        nonlocal let_in
        async with shared.changing(place, vhost):
            let_in += 1
            await over.wait()

    async with asyncio.TaskGroup() as tasks:
        for place, vhost in asked:
            tasks.create_task(change(place, vhost))
        for _ in range(3):  # through both gates
            await asyncio.sleep(0)
        found = let_in
        over.set()
    assert let_in == len(asked)
    return found


async def test_links_of_one_vhost_leave_half_of_a_broker_to_others() -> None:
    there = end("amqp://there/a", "amqp://beside/a")
    same = end("amqp://beside/b", "amqp://user:secret@there/b")
    assert await changing_at_once([(there, "slow")] * 80 + [(same, "slow")] * 80) == CHANGED_BY_VHOST
    assert await changing_at_once([(there, "slow")] * 160 + [(same, "another")]) == CHANGED_BY_VHOST + 1
    vhosts = [(there, str(number)) for number in range(160)]
    assert await changing_at_once(vhosts) == CHANGED_AT_ONCE
    assert await changing_at_once([*vhosts, (end("amqp://away/a"), "0")]) == CHANGED_AT_ONCE + 1


def test_a_link_that_takes_long_gives_its_place_away() -> None:
    """It may wait for a blocked destination for hours."""

    async def live() -> None:
        shared, place, ended = brokers(), end("amqp://there/a"), asyncio.Event()

        async def change() -> None:
            async with shared.changing(place, "slow"):
                await ended.wait()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(CHANGED_BY_VHOST):
                tasks.create_task(change())
            await asyncio.sleep(0)
            begun = asyncio.get_running_loop().time()
            async with shared.changing(place, "slow"):
                assert asyncio.get_running_loop().time() - begun == LONGEST_CHANGE
            ended.set()
        async with asyncio.timeout(1), asyncio.TaskGroup() as tasks:  # each place was given back once
            for _ in range(CHANGED_BY_VHOST):
                tasks.create_task(change())

    in_virtual_time(live())


async def test_few_links_have_connections_of_their_own_at_a_time() -> None:
    shared, place = brokers(), end("amqp://there/a")
    assert all(
        shared.may_have_dedicated(place, str(number), now=0.0, until=10.0) for number in range(DEDICATED_AT_ONCE)
    )
    assert not shared.may_have_dedicated(place, "another", now=0.0, until=10.0)
    assert shared.may_have_dedicated(end("amqp://there/b"), "another", now=0.0, until=10.0)
    assert shared.may_have_dedicated(place, "0", now=0.0, until=10.0)
    assert shared.may_have_dedicated(place, "another", now=10.0, until=20.0)


HERE = End("downstream", (parse("amqp://agent:p@here"),))


FIRST, SECOND = end("amqp://agent:first@there"), end("amqp://agent:second@there")


def test_an_end_with_another_password_is_renewed_for_all_its_links() -> None:
    assert renewed_ends([(Ends(FIRST, HERE), Ends(SECOND, HERE))] * 3) == {FIRST: SECOND}


def test_one_that_only_some_links_leave_stays_with_the_others() -> None:
    """A shovel of another tenant that was defined with the same password, for example."""
    assert renewed_ends([(Ends(FIRST, HERE), Ends(SECOND, HERE)), (Ends(FIRST, HERE), Ends(FIRST, HERE))]) == {}
    third = end("amqp://agent:third@there")
    assert renewed_ends([(Ends(FIRST, HERE), Ends(SECOND, HERE)), (Ends(FIRST, HERE), Ends(third, HERE))]) == {}


def test_another_user_or_address_is_another_end() -> None:
    for now in ("amqp://other:first@there", "amqp://agent:second@elsewhere", "amqp://there"):
        assert renewed_ends([(Ends(FIRST, HERE), Ends(end(now), HERE))]) == {}
    two = end("amqp://agent:second@there", "amqp://agent:second@there2")
    assert renewed_ends([(Ends(FIRST, HERE), Ends(two, HERE))]) == {}
