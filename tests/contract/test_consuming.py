"""Consumers: how much they get, who goes first, who is alone, and how they end."""

from __future__ import annotations

from typing import Final

import pytest

from agent.amqp.wire import methods
from tests.contract.asking import OK, Asking, Release
from tests.contract.in_channel import changed_in_channel, look_at_timeouts
from tests.lab.waiting import eventually_async

IN_USE: Final = "403 ACCESS_REFUSED - queue '{}' in vhost 'V' in exclusive use"
BESIDE_AN_EXCLUSIVE_ONE: Final = {"classic": IN_USE, "quorum": OK}
"""Quorum queues take `exclusive` and don't keep to it."""
COUNTED_OF_TWO: Final = {"classic": 2, "quorum": 1}
"""Of a single active consumer and one that waits."""
LOCKED: Final = "405 RESOURCE_LOCKED - cannot obtain access to locked queue '{}' in vhost 'V'. basic.get operations "
"""To who asks a quorum queue for a message, with more words behind."""
TIMED_OUT: Final = {
    # an unacknowledged message of a quorum queue: the channel is closed, later only the consumer cancelled
    "3.10": "406 PRECONDITION_FAILED - delivery acknowledgement on channel {} timed out. Timeout value used: 1 ms. "
    "This timeout value can be configured, see consumers doc guide to learn more",
    "4.3": "cancelled",
}
TIMEOUTS_BY_QUEUE: Final = {"3.10": False, "3.12": True}
"""Whether `x-consumer-timeout` of the queue has an effect; otherwise the broker's own, 30 minutes, is the only one."""
DEFAULT_TIMEOUT: Final = 1_800_000
KINDS: Final = ("classic", "quorum")

kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
async def test_a_prefetch(ask: Asking, kind: str) -> None:
    """It holds for consumers that begin after it was set."""
    await ask.queue(queue := f"prefetch {kind}", {"x-queue-type": kind})
    for number in b"1234":
        await ask.publish("", queue, body=bytes([number]))
    line = await ask.line()
    await line.channel.ask(methods.BASIC_QOS, prefetch_count=2)
    assert await line.consume(queue, "tag") == OK

    async def ready(expected: int) -> None:
        async def counted() -> bool:
            return await ask.counted(queue) == f"ok, {expected} messages, 1 consumers"

        await eventually_async(counted, what=f"{expected} wait")

    await line.until(lambda: line.bodies == ["1", "2"], "two come")
    await ready(2)
    line.channel.send(methods.BASIC_ACK, delivery_tag=line.messages[0].call["delivery_tag"])
    await ready(1)
    await line.until(lambda: line.bodies == ["1", "2", "3"], "the next one comes")


async def test_without_acknowledgements(ask: Asking) -> None:
    await ask.queue("no ack")
    await ask.publish("", "no ack")
    line = await ask.line()
    await line.consume("no ack", "tag", no_ack=True)
    await line.until(lambda: line.bodies, "it comes")
    await line.channel.close()
    assert await ask.counted("no ack") == "ok, 0 messages, 0 consumers"


@kinds
async def test_a_message_that_is_fetched_and_not_acknowledged(ask: Asking, kind: str) -> None:
    """A quorum queue counts who fetched it as a consumer, as long as it isn't acknowledged."""
    await ask.queue(queue := f"fetched {kind}", {"x-queue-type": kind})
    for _ in range(2):
        await ask.publish("", queue)
    line = await ask.line()
    assert await line.get(queue)

    async def counted() -> bool:
        return await ask.counted(queue) == f"ok, 1 messages, {int(kind == 'quorum')} consumers"

    await eventually_async(counted, what="who fetched it is counted")
    await line.channel.close()

    async def back() -> bool:
        return await ask.counted(queue) == "ok, 2 messages, 0 consumers"

    await eventually_async(back, what="it is back")


async def test_what_can_not_be_consumed(ask: Asking) -> None:
    assert await (await ask.line()).consume("gone", "tag") == "404 NOT_FOUND - no queue 'gone' in vhost 'V'"
    await ask.queue("q")
    line = await ask.line()
    await line.consume("q", "tag")
    assert await line.consume("q", "tag") == "closed: 530 NOT_ALLOWED - attempt to reuse consumer tag 'tag'"


@kinds
async def test_cancelling(ask: Asking, kind: str) -> None:
    """What isn't acknowledged stays with the channel; a consumer that isn't there may be cancelled, too."""
    await ask.queue(queue := f"cancelled {kind}", {"x-queue-type": kind})
    await ask.publish("", queue)
    line = await ask.line()
    await line.consume(queue, "tag")
    await line.until(lambda: line.bodies, "it comes")
    for tag in ("tag", "nobody's"):
        answer = await line.channel.ask(methods.BASIC_CANCEL, consumer_tag=tag)
        assert answer["consumer_tag"] == tag
    assert not await (await ask.line()).get(queue)
    line.channel.send(methods.BASIC_ACK, delivery_tag=1)
    assert await line.consume(queue, "tag 2") == OK


@kinds
async def test_priorities(ask: Asking, kind: str) -> None:
    """Whoever has a lower one gets nothing while another has room."""
    await ask.queue(queue := f"priority {kind}", {"x-queue-type": kind})
    below, user = await ask.line(), await ask.line()
    assert await below.consume(queue, "below", {"x-priority": -1}) == OK
    await user.consume(queue, "user")
    for number in (b"1", b"2"):
        await ask.publish("", queue, body=number)
    await user.until(lambda: user.bodies == ["1", "2"], "the user gets both")
    assert below.bodies == []


@kinds
async def test_an_exclusive_consumer(ask: Asking, kind: str) -> None:
    await ask.queue(queue := f"exclusive {kind}", {"x-queue-type": kind})
    first = await ask.line()
    assert await first.consume(queue, "first", exclusive=True) == OK
    for exclusive in (False, True):
        second = await ask.line()
        answer = await second.consume(queue, "second", exclusive=exclusive)
        assert answer == BESIDE_AN_EXCLUSIVE_ONE[kind].format(queue)
        await second.channel.close()
    await first.channel.close()
    third = await ask.line()
    assert await third.consume(queue, "third") == OK
    assert await (await ask.line()).consume(queue, "fourth", exclusive=True) == (
        BESIDE_AN_EXCLUSIVE_ONE[kind].format(queue)
    )


@kinds
async def test_a_single_active_consumer(ask: Asking, kind: str) -> None:
    """Another becomes active when it ends, and gets what it gives back."""
    await ask.queue(queue := f"active {kind}", {"x-queue-type": kind, "x-single-active-consumer": True})
    active, waiting = await ask.line(), await ask.line()
    await active.consume(queue, "active")
    assert await waiting.consume(queue, "waiting") == OK
    await ask.publish("", queue, body=b"token")
    await active.until(lambda: active.bodies, "the token comes")

    async def counted() -> bool:
        return await ask.counted(queue) == f"ok, 0 messages, {COUNTED_OF_TWO[kind]} consumers"

    await eventually_async(counted, what="both or one are counted")
    got = await ask(methods.BASIC_GET, queue=queue)
    assert got == OK if kind == "classic" else got.startswith(LOCKED.format(queue))
    assert waiting.bodies == []
    await active.channel.ask(methods.BASIC_CANCEL, consumer_tag="active")
    active.give_back()
    await waiting.until(lambda: waiting.bodies == ["token"], "the next one gets it")
    assert waiting.messages[0].call["redelivered"]


@kinds
async def test_a_queue_that_is_deleted(ask: Asking, kind: str) -> None:
    await ask.queue(queue := f"deleted {kind}", {"x-queue-type": kind})
    line = await ask.line()
    await line.consume(queue, "tag")
    await ask(methods.QUEUE_DELETE, queue=queue)
    await line.until(lambda: line.cancelled == ["tag"], "the consumer is told")
    assert line.end == ""


async def test_a_message_that_is_not_acknowledged_in_time(ask: Asking, release: Release) -> None:
    """It comes again to another consumer in any case."""
    has_own = release.says(TIMEOUTS_BY_QUEUE)
    await ask.queue(queue := "timed", {"x-queue-type": "quorum", **({"x-consumer-timeout": 1} if has_own else {})})
    await ask.publish("", queue)
    line = await ask.line()
    await line.consume(queue, "tag")
    await line.until(lambda: line.bodies, "it comes")
    if not has_own:
        changed_in_channel(release, queue, DEFAULT_TIMEOUT, 1)

    async def over() -> str:
        if not line.end and not line.cancelled:
            look_at_timeouts(release, queue)
        return line.end or ("cancelled" if line.cancelled else "")

    expected = release.says(TIMED_OUT).format(line.channel.number)
    assert await eventually_async(over, what="the consumer is no more") == expected
    other = await ask.line()

    async def comes_again() -> bool:
        return await other.get(queue)

    await eventually_async(comes_again, what="it is back")
    assert other.messages[0].call["redelivered"]
