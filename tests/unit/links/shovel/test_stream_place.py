"""Where a session begins in a stream: never at a place that was guessed."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest

from agent.amqp.connect import Connection
from agent.amqp.wire import methods
from agent.amqp.wire.properties import HEADERS, Properties
from agent.amqp.wire.tables import encode_table
from agent.core import fields
from agent.core.addresses.uri import parse
from agent.core.fields import Field, Table
from agent.core.model import STREAM_OFFSET
from agent.errors import TransientError
from agent.links.brokers import Brokers
from agent.links.ends import End
from agent.links.shovel.stream_place import StreamPlace
from tests.simulation.broker.broker import Broker
from tests.simulation.broker.queues import Consumer, Message, Queue
from tests.unit.model_brokers import THERE, Models, among_models

PLACE: Final = "place"
STREAM: Final = "stream"
DEFINED: Final[Table] = ((STREAM_OFFSET, fields.text("next")),)


@dataclass(eq=False)
class Stream(Queue):
    """Of one chunk, with these offsets."""

    offsets: range = range(0)
    is_slow: bool = False

    def consume(self, consumer: Consumer) -> None:
        super().consume(consumer)
        asked = fields.get(consumer.arguments, STREAM_OFFSET)
        assert asked is not None
        first = self.offsets.start if asked.value == "last" else max(asked.value, self.offsets.start)
        if first in self.offsets and not self.is_slow:
            headers = encode_table(((STREAM_OFFSET, fields.long(first)),))
            written = Properties(HEADERS, ((HEADERS, headers),)).write()
            consumer.channel.deliver(consumer, Message(first, "", self.name, written, b"", persistent=True))


class Scene:
    def __init__(self, broker: Broker, connection: Connection, brokers: Brokers, end: End) -> None:
        self.broker = broker
        self.connection = connection
        self.stream = Stream(STREAM, durable=True)
        broker.make_queue(self.stream)
        self._brokers = brokers
        self._end = end
        self.place = self.place_of_a_new_agent()

    @staticmethod
    def place_of_a_new_agent() -> StreamPlace:
        return StreamPlace("link", STREAM, PLACE, lambda: None)

    def remember(self, offset: int) -> None:
        self.broker.make_queue(Queue(PLACE, durable=True))
        record = json.dumps({"stream": STREAM, "offset": offset}).encode()
        self.broker.publish("", PLACE, b"\0\0", record)

    async def begins_at(self) -> Field | None:
        arguments = await self.place.begin(
            self.connection, DEFINED, is_new=False, spare=lambda: self._brokers.trial(self._end, self.connection.uri)
        )
        return fields.get(arguments, STREAM_OFFSET)


def scene(live: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def run(models: Models) -> None:
        broker, brokers = models.broker(THERE), Brokers((), "here", stall_after=30)
        end = End("source", (parse(f"amqp://{THERE}"),), "/")
        async with await brokers.control(end) as control:
            await live(Scene(broker, control.connection, brokers, end))

    among_models(run)


@asynccontextmanager
async def consumed(connection: Connection, queue: str) -> Any:
    """Somebody else holds what is in the queue."""
    channel = connection.wire.begin_channel()
    channel.on_message = lambda _: None
    await channel.ask(methods.BASIC_CONSUME, queue=queue)
    yield
    await channel.close()


@pytest.mark.parametrize("is_declared", [True, False])
def test_without_a_place_it_begins_where_the_definition_says(*, is_declared: bool) -> None:
    """An agent may have died between the first look and the first message."""

    async def live(found: Scene) -> None:
        if is_declared:
            found.broker.make_queue(Queue(PLACE, durable=True))
        assert await found.begins_at() == fields.text("next")
        assert PLACE in found.broker.queues

    scene(live)


def test_it_goes_on_behind_the_place_which_stays_where_it_is() -> None:
    async def live(found: Scene) -> None:
        found.stream.offsets = range(100)
        found.remember(41)
        assert await found.begins_at() == fields.long(42)
        assert len(found.broker.queues[PLACE].ready) == 1

    scene(live)


def test_a_place_that_somebody_else_holds_is_not_taken_for_none() -> None:
    async def live(found: Scene) -> None:
        found.stream.offsets = range(100)
        found.remember(41)
        async with consumed(found.connection, PLACE):
            for _ in range(2):
                with pytest.raises(TransientError, match="somebody else looks into queue 'place'"):
                    await found.begins_at()
        assert await found.begins_at() == fields.long(42)

    scene(live)


def test_a_stream_that_ends_before_the_place_waits_for_an_operator() -> None:
    """It may be another one, which grows; or a replica is late, which only an operator knows."""

    async def live(found: Scene) -> None:
        found.remember(41)
        for offsets in (range(10), range(10), range(100)):
            found.stream.offsets = offsets
            with pytest.raises(TransientError, match=r"ends before offset 41, .* restart the shovel"):
                await found.begins_at()
        found.place.look_again()
        assert await found.begins_at() == fields.long(42)

    scene(live)


@pytest.mark.parametrize("offsets", [range(100), range(50, 60)])
def test_a_stream_that_delivers_nothing_in_time_is_tried_again(offsets: range) -> None:
    async def live(found: Scene) -> None:
        found.remember(41)
        found.stream.offsets, found.stream.is_slow = offsets, True
        for _ in range(2):
            with pytest.raises(TransientError, match="delivers nothing at offset 41"):
                await found.begins_at()
        found.stream.is_slow = False
        assert await found.begins_at() == fields.long(42)
        assert ("had dropped up to 8 messages" in found.place.notes) is (offsets.start == 50)

    scene(live)
