"""How a flow consumes: as its options say, paused and resumed on the same channels, and up to a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest

from agent.core import fields
from agent.core.model import AckMode
from agent.errors import BrokerError
from agent.links.consumer import ServedElsewhereError
from tests.integration.amqp.links import until, until_depth
from tests.integration.links.flows import options, running
from tests.lab.node import Node
from tests.lab.user_program import depth_async, messages_async, numbered, publish_async
from tests.lab.waiting import DEADLINE, eventually_async

Named = Callable[[str], str]


def made(*nodes: Node, called: str, arguments: Mapping[str, object] | None = None) -> str:
    for node in nodes:
        node.admin.queue("/", called, arguments=arguments)
    return called


async def consumers(node: Node, queue: str) -> list[dict[str, object]]:
    found = await asyncio.to_thread(node.admin.get, "consumers", "/")
    return [each for each in found if each["queue"]["name"] == queue]


async def test_a_consumer_has_the_tag_and_the_arguments_that_the_kind_chose(
    broker: Node, second_broker: Node, name: Named
) -> None:
    queue = made(broker, second_broker, called=name("arguments"))
    wanted = options(queue, arguments=(("x-priority", fields.long(-1)),), prefetch=7)
    async with running(broker, second_broker, wanted):

        async def shown() -> list[dict[str, object]]:
            return await consumers(broker, queue)

        [found] = await eventually_async(shown, what="the consumer is shown")
        assert (found["consumer_tag"], found["exclusive"], found["prefetch_count"]) == ("shovel", False, 7)
        assert found["arguments"] == {"x-priority": -1}
        async with running(broker, second_broker, wanted):  # users' programs may consume, too
            pass


async def test_exclusive_is_what_the_kind_says_and_means_served_elsewhere(
    broker: Node, second_broker: Node, name: Named
) -> None:
    queue = made(broker, second_broker, called=name("exclusive"))
    async with running(broker, second_broker, options(queue, exclusive=True)):
        for exclusive in (True, False):
            with pytest.raises(ServedElsewhereError):
                async with running(broker, second_broker, options(queue, exclusive=exclusive)):
                    pass


@pytest.mark.parametrize("ack_mode", AckMode)
async def test_a_pause_forwards_what_has_come_and_leaves_the_rest_until_it_is_over(
    broker: Node, second_broker: Node, name: Named, ack_mode: AckMode
) -> None:
    queue = made(broker, second_broker, called=name("paused"))
    before, meanwhile = numbered(1_500), numbered(100, 1_500)
    await publish_async(broker.uri(), "", queue, before)
    async with running(broker, second_broker, options(queue, ack_mode=ack_mode)) as run:
        await run.flow.pause_consuming()
        await run.flow.pause_consuming()
        await until(lambda: not run.flow.unsettled, what="what has come is settled")
        forwarded, left = run.counts.forwarded, await depth_async(broker.uri(), queue)
        assert forwarded + left == len(before)
        await publish_async(broker.uri(), "", queue, meanwhile)
        assert await depth_async(broker.uri(), queue) == left + len(meanwhile)
        assert run.counts.forwarded == forwarded
        for _ in range(2):
            await run.flow.resume_consuming()
        await until(lambda: run.counts.forwarded == 1_600, what="the rest is forwarded")
        assert not any(end.done() for end in run.flow.ends)
        await run.flow.close()
    found = await messages_async(second_broker.uri(), queue, 1_600)
    assert [each.body.decode() for each in found] == before + meanwhile


async def test_pause_and_resume_may_follow_one_another_at_any_moment(
    broker: Node, second_broker: Node, name: Named
) -> None:
    queue = made(broker, second_broker, called=name("flapping"))
    bodies = numbered(2_000)
    async with running(broker, second_broker, options(queue)) as run:
        publishing = asyncio.create_task(publish_async(broker.uri(), "", queue, bodies))
        for number in range(30):
            pausing, resuming = run.flow.pause_consuming(), run.flow.resume_consuming()
            await asyncio.gather(pausing, resuming, *([run.flow.resize(1_000 + number)] if number % 3 == 0 else []))
            await asyncio.sleep(0.001 * (number % 4))
        await publishing
        await until(lambda: run.counts.forwarded == 2_000, what="all are forwarded")
        assert not any(end.done() for end in run.flow.ends)
    found = [each.body.decode() for each in await messages_async(second_broker.uri(), queue, 2_000)]
    assert sorted(found) == bodies
    assert all(first < second for first, second in pairwise(found))


async def test_quorum_queues_lose_nothing_by_pauses_and_limits(broker: Node, second_broker: Node, name: Named) -> None:
    """They take back what is on its way to a consumer that ends, so the order may change there."""
    queue = made(broker, called=name("quorum"), arguments={"x-queue-type": "quorum"})
    made(second_broker, called=queue)
    bodies = numbered(500)
    async with running(broker, second_broker, options(queue, is_quorum=True, limit=400)) as run:
        publishing = asyncio.create_task(publish_async(broker.uri(), "", queue, bodies))
        for _ in range(10):
            await run.flow.pause_consuming()
            await run.flow.resume_consuming()
        await publishing
        async with asyncio.timeout(DEADLINE):
            await run.flow.finished()
        await run.flow.close()
    assert run.counts.forwarded == 400
    await until_depth(broker, queue, 100)
    left, gone = await messages_async(broker.uri(), queue, 100), await messages_async(second_broker.uri(), queue, 400)
    assert sorted(each.body.decode() for each in left + gone) == bodies


async def test_a_queue_that_is_deleted_ends_the_flow_also_while_it_is_paused(
    broker: Node, second_broker: Node, name: Named
) -> None:
    queue = made(broker, second_broker, called=name("deleted"))
    async with running(broker, second_broker, options(queue)) as run:
        await run.flow.pause_consuming()
        await asyncio.to_thread(broker.admin.delete, "queues", "/", queue)
        with pytest.raises(BrokerError, match="no queue"):
            await run.flow.resume_consuming()
        assert any(end.done() for end in run.flow.ends)
        for _ in range(2):  # nothing happens any more
            await run.flow.pause_consuming()
        await run.flow.resize(5)
        await run.flow.close()


async def test_a_paused_flow_can_be_closed_and_left(broker: Node, second_broker: Node, name: Named) -> None:
    queue = made(broker, second_broker, called=name("closed"))
    async with running(broker, second_broker, options(queue)) as run:
        await run.flow.pause_consuming()
        async with asyncio.timeout(DEADLINE):
            await run.flow.close()
            await run.flow.leave()
        await run.flow.pause_consuming()

        async def gone() -> bool:
            return not await consumers(broker, queue)

        assert await eventually_async(gone, what="none is listed")


@pytest.mark.parametrize(("limit", "count"), [(1, 50), (2_500, 3_000)])  # far fewer and more than are sent ahead
async def test_a_limit_forwards_exactly_as_many_and_leaves_the_rest_in_order(
    broker: Node, second_broker: Node, name: Named, limit: int, count: int
) -> None:
    queue = made(broker, second_broker, called=name("limited"))
    bodies = numbered(count)
    await publish_async(broker.uri(), "", queue, bodies)
    async with running(broker, second_broker, options(queue, limit=limit)) as run:
        async with asyncio.timeout(DEADLINE):
            await run.flow.finished()
        await run.flow.close()
    assert run.counts.forwarded == limit
    await until_depth(broker, queue, count - limit)
    assert [each.body.decode() for each in await messages_async(second_broker.uri(), queue, limit)] == bodies[:limit]
    left = await messages_async(broker.uri(), queue, count - limit)
    assert [each.body.decode() for each in left] == bodies[limit:]


async def test_what_the_destination_refuses_is_no_part_of_the_limit(
    broker: Node, second_broker: Node, name: Named
) -> None:
    """It is full until somebody takes from it; what was refused comes again."""
    queue = made(broker, called=name("refused"))
    made(second_broker, called=queue, arguments={"x-max-length": 20, "x-overflow": "reject-publish"})
    await publish_async(broker.uri(), "", queue, numbered(200))
    async with running(broker, second_broker, options(queue, limit=50)) as run:
        finished = asyncio.create_task(run.flow.finished())
        await until(lambda: run.counts.refused, what="some are refused")
        assert not finished.done()
        # By one consumer: what comes while it closes is lost.
        taken = [each.body.decode() for each in await messages_async(second_broker.uri(), queue, 50)]
        await asyncio.wait_for(finished, DEADLINE)
        await run.flow.close()
    assert run.counts.forwarded == len(set(taken)) == len(taken) == 50
    await until_depth(broker, queue, 150)


def test_no_limit_where_nothing_can_go_back() -> None:
    with pytest.raises(ValueError, match="acknowledged"):
        options("q", limit=5, ack_mode=AckMode.NO_ACK)
