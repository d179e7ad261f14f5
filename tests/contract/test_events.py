"""What `amq.rabbitmq.event` in vhost `/` reports, with the fields that the agent reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from agent.amqp.broker_events import (
    BINDING_EVENTS,
    DEFINITION_EVENTS,
    EVENT_EXCHANGE,
    BrokerEvent,
    EventReader,
    NoEvents,
    subscribe,
)
from agent.amqp.wire import methods
from agent.downstream.consumers import EVENTS as CONSUMER_EVENTS
from tests.contract.asking import Asking, Release
from tests.lab.waiting import eventually_async

CHANNEL_WITH_TWO_CONSUMERS: Final[dict[str, tuple[int, int | None]]] = {
    "3.10": (2, None),
    "3.12.5": (0, None),
    "3.12.13": (0, 2),
}
"""Of a classic queue, when the channel is closed: how many `consumer.deleted`, and the `consumer_count` of the channel.
Of a quorum queue each end is reported, too."""
GLOBAL_PARAMETER: Final = {"3.10": ["parameter.set"] * 2, "3.12": ["parameter.set", "parameter.cleared"]}
"""When it is set and cleared."""
BELOW: Final = ['{<<"x-priority">>,long,-1}']
SENTINEL: Final = "S3NTINEL"


@dataclass
class Heard:
    """EventReader of one vhost, and those of none."""

    vhost: str
    all: list[BrokerEvent] = field(default_factory=list)

    async def listen(self, events: EventReader) -> None:
        async for event in events:
            if event.vhost in {self.vhost, None} or event.fields.get("name") == self.vhost:
                self.all.append(event)

    def of(self, kind: str, **expected: object) -> list[BrokerEvent]:
        return [
            each
            for each in self.all
            if each.name == kind and all(each.fields.get(key) == value for key, value in expected.items())
        ]

    async def one(self, kind: str, **expected: object) -> dict[str, Any]:
        """The fields of the one that is so, as soon as it has come."""

        async def found() -> list[BrokerEvent]:
            return self.of(kind, **expected)

        [event] = await eventually_async(found, what=f"{kind} {expected}")
        return dict(event.fields)


@pytest.fixture
async def heard(release: Release, asking: Callable[..., Asking]) -> AsyncIterator[Heard]:
    connection = await asking(vhost="/").connection()
    events = await subscribe(connection, (*DEFINITION_EVENTS, *BINDING_EVENTS, *CONSUMER_EVENTS))
    assert isinstance(events, EventReader)
    made = Heard(release.vhost)
    listening = asyncio.create_task(made.listen(events))
    yield made
    listening.cancel()
    with suppress(asyncio.CancelledError):
        await listening


async def test_without_its_exchange_there_are_none(ask: Asking) -> None:
    assert isinstance(await subscribe(await ask.connection(), DEFINITION_EVENTS), NoEvents)


async def test_definitions(heard: Heard, release: Release) -> None:
    admin, vhost = release.node.admin, release.vhost
    admin.exchange(vhost, "x", "headers")
    admin.queue(vhost, "q")
    admin.bind(vhost, "x", "q", "k", arguments={"x-match": "all", "n": 1})
    admin.policy(vhost, "p", "^x", definition={"max-length": 1})
    admin.delete("policies", vhost, "p")
    admin.delete("exchanges", vhost, "x")
    admin.delete("queues", vhost, "q")
    assert (await heard.one("exchange.created", name="x"))["type"] == "headers"
    assert (await heard.one("queue.created", name="q"))["durable"] is True
    for kind in ("binding.created", "binding.deleted"):
        bound = await heard.one(kind, source_name="x", vhost=vhost)
        assert (bound["destination_name"], bound["destination_kind"], bound["routing_key"]) == ("q", "queue", "k")
        assert bound["arguments"] == ['{<<"n">>,long,1}', '{<<"x-match">>,longstr,<<"all">>}']
    assert (await heard.one("policy.set", name="p"))["pattern"] == "^x"
    for kind, name in (("policy.cleared", "p"), ("exchange.deleted", "x"), ("queue.deleted", "q")):
        assert (await heard.one(kind, name=name))["vhost"] == vhost
    assert not [each for each in heard.all if each.fields.get("source_name") == EVENT_EXCHANGE]


async def test_vhosts_and_global_parameters(heard: Heard, release: Release, name: Callable[[str], str]) -> None:
    """Values are left out: they hold passwords."""
    admin, vhost, parameter = release.node.admin, name("told"), name("parameter")
    admin.global_parameter(parameter, {"uri": f"amqp://u:{SENTINEL}@h"})
    admin.delete("global-parameters", parameter)
    heard.vhost = vhost
    admin.vhost(vhost)
    admin.delete_vhost(vhost)
    await heard.one("vhost.created", name=vhost)
    await heard.one("vhost.deleted", name=vhost)
    told = [each.name for each in heard.all if each.fields.get("name") == parameter]
    assert told == release.says(GLOBAL_PARAMETER)
    assert {each.fields["component"] for each in heard.all if each.fields.get("name") == parameter} == {"global"}
    assert SENTINEL not in repr(heard.all)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_consumers(heard: Heard, ask: Asking, release: Release, kind: str) -> None:
    await ask.queue(queue := f"consumed {kind}", {"x-queue-type": kind})
    line = await ask.line()
    for tag in ("cancelled", "one", "two"):
        await line.consume(queue, tag, {"x-priority": -1})
    made = await heard.one("consumer.created", queue=queue, consumer_tag="cancelled")
    assert (made["vhost"], made["queue"], made["arguments"]) == (release.vhost, queue, BELOW)
    await line.channel.ask(methods.BASIC_CANCEL, consumer_tag="cancelled")
    gone = await heard.one("consumer.deleted", queue=queue, consumer_tag="cancelled")
    assert (gone["vhost"], gone["queue"], gone["channel"]) == (release.vhost, queue, made["channel"])
    await line.channel.close()
    closed = await heard.one("channel.closed", pid=made["channel"])
    deleted, count = release.says(CHANNEL_WITH_TWO_CONSUMERS)
    deleted = 2 if kind == "quorum" else deleted
    assert closed.get("consumer_count") == count
    for tag in ("one", "two")[:deleted]:
        await heard.one("consumer.deleted", queue=queue, consumer_tag=tag)
    await ask.exchange(f"after {kind}", "fanout")
    await heard.one("exchange.created", name=f"after {kind}")
    assert len(heard.of("consumer.deleted", queue=queue)) == 1 + deleted
