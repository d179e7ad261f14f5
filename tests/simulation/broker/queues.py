"""A queue: messages that are ready, and consumers that get them: by priority, and in turn."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Protocol

from agent.core.fields import Table, get

CREATED: Final = "created"
DELETED: Final = "deleted"
GONE_UNTOLD: Final = "gone untold"
"""With its channel, of which alone the broker tells then."""


@dataclass(eq=False, slots=True)
class Message:
    """`number` is its place in the queue. `is_safe`: it is on disk, so it outlives the broker."""

    number: int
    exchange: str
    key: str
    properties: bytes
    body: bytes
    persistent: bool
    redelivered: bool = False
    is_safe: bool = False

    def __lt__(self, other: Message) -> bool:
        return self.number < other.number


class Channel(Protocol):
    """Who consumes on a channel."""

    @property
    def pid(self) -> str:
        """As events name it."""

    @property
    def process(self) -> Any:
        """Whose it is; None where it is no agent's."""

    def deliver(self, consumer: Consumer, message: Message) -> None: ...

    def cancel(self, consumer: Consumer) -> None: ...


@dataclass(eq=False)
class Consumer:
    channel: Channel
    queue: Queue
    tag: str
    no_ack: bool
    exclusive: bool
    prefetch: int
    arguments: Table = ()
    unacked: int = 0

    @cached_property
    def priority(self) -> int:
        found = get(self.arguments, "x-priority")
        return 0 if found is None else int(found.value)

    @property
    def has_room(self) -> bool:
        return self.no_ack or not self.prefetch or self.unacked < self.prefetch


@dataclass(eq=False)
class Queue:
    name: str
    durable: bool = False
    auto_delete: bool = False
    owner: Any = None  # the session that it is exclusive to
    arguments: Table = ()
    ready: list[Message] = field(default_factory=list)
    consumers: list[Consumer] = field(default_factory=list)
    unacked: dict[Message, None] = field(default_factory=dict)
    used_at: float = 0.0
    on_unused: Callable[[Queue], None] = lambda queue: None
    on_consumer: Callable[[str, Consumer], None] = lambda what, consumer: None
    _last: int = 0

    @property
    def is_single(self) -> bool:
        found = get(self.arguments, "x-single-active-consumer")
        return found is not None and bool(found.value)

    @property
    def limit(self) -> int | None:
        found = get(self.arguments, "x-max-length")
        return None if found is None else int(found.value)

    @property
    def expires(self) -> float | None:
        """Seconds without use."""
        found = get(self.arguments, "x-expires")
        return None if found is None else found.value / 1000

    @property
    def is_exclusively_consumed(self) -> bool:
        return any(each.exclusive for each in self.consumers)

    def put(self, message: Message) -> Message:
        self._last += 1
        message.number = self._last
        self.ready.append(message)
        while self.limit is not None and len(self.ready) > self.limit:
            self.ready.pop(0)
        self.pump()
        return message

    def give_back(self, messages: list[Message]) -> None:
        """To where they were."""
        for message in messages:
            if self.unacked.pop(message, self) is self:
                continue
            message.redelivered = True
            insort(self.ready, message)
        self.pump()

    def settle(self, message: Message) -> None:
        self.unacked.pop(message, None)

    def take(self) -> Message | None:
        if not self.ready:
            return None
        message = self.ready.pop(0)
        self.unacked[message] = None
        return message

    def pump(self) -> None:
        while self.ready:
            able = self.consumers[:1] if self.is_single else self.consumers
            with_room = [each for each in able if each.has_room]
            if not with_room:
                return
            consumer = max(with_room, key=lambda each: each.priority)  # the first of those that are equal
            if not self.is_single:  # the others have their turn before it comes again
                self.consumers.remove(consumer)
                self.consumers.append(consumer)
            message = self.take()
            assert message is not None
            if consumer.no_ack:
                self.settle(message)
            else:
                consumer.unacked += 1
            consumer.channel.deliver(consumer, message)

    def consume(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        self.on_consumer(CREATED, consumer)
        self.pump()

    def leave(self, consumer: Consumer, how: str = DELETED) -> None:
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        is_end = self.auto_delete and not self.consumers  # then the queue tells of its last ones
        self.on_consumer(DELETED if is_end else how, consumer)
        if not self.consumers:
            self.on_unused(self)
        self.pump()
