"""One broker: its objects, its sessions, its disk, and what outlives it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Final

from tests.simulation.broker.exchanges import DEFAULT, Routing
from tests.simulation.broker.queues import Message, Queue
from tests.simulation.broker.sessions import Session
from tests.simulation.network import Network, Stream

_DELIVERY_MODE: Final = 0x1000
_LONGEST_WATCHED: Final = 3600.0


class Broker:
    def __init__(
        self,
        network: Network,
        chance: Random,
        cluster: str,
        *,
        version: str = "3.10.8",
        has_plugin: bool = False,
    ) -> None:
        self.network = network
        self.cluster = cluster
        self.version = version
        self.has_plugin = has_plugin
        self.is_up = True
        self.alarm = ""
        self.routing = Routing()
        self.queues: dict[str, Queue] = {}
        self.sessions: dict[Session, None] = {}
        self.slowest_disk = 0.02
        self.on_published: Callable[[Session | None, Message, list[str]], None] = lambda session, message, to: None
        self.on_unknown_tag: Callable[[Session, int], None] = lambda session, tag: None
        self._chance = chance
        self._made_up = 0
        self._era = 0  # confirms of one that has ended are never sent
        self._safe_at = 0.0

    @property
    def now(self) -> float:
        return self.network.loop.time()

    @property
    def outlives_unknown_types(self) -> bool:
        return tuple(int(part) for part in self.version.split(".")) >= (3, 13, 3)

    # Sessions

    def accept(self, stream: Stream) -> Session:
        session = Session(self, stream)
        self.sessions[session] = None
        return session

    def left(self, session: Session) -> None:
        self.sessions.pop(session, None)
        for queue in [each for each in self.queues.values() if each.owner is session]:
            self.delete_queue(queue)

    # Objects

    def made_up_name(self) -> str:
        self._made_up += 1
        return f"amq.gen-{self._made_up}"

    def make_queue(self, queue: Queue) -> Queue:
        self.queues[queue.name] = queue
        queue.on_unused = self._unused
        queue.used_at = self.now
        if queue.expires is not None and queue.expires < _LONGEST_WATCHED:
            self._watch(queue)
        return queue

    def _watch(self, queue: Queue) -> None:
        if self.queues.get(queue.name) is not queue or queue.expires is None:
            return
        if queue.consumers:
            queue.used_at = self.now
        left = queue.used_at + queue.expires - self.now
        if left <= 0:
            self.delete_queue(queue)
        else:
            self.network.after(left, lambda: self._watch(queue))

    def _unused(self, queue: Queue) -> None:
        queue.used_at = self.now
        if queue.auto_delete and self.queues.get(queue.name) is queue:
            self.delete_queue(queue)

    def delete_queue(self, queue: Queue) -> None:
        self.queues.pop(queue.name, None)
        queue.ready.clear()
        queue.unacked.clear()
        self.routing.forget(queue.name, is_queue=True)
        consumers, queue.consumers = queue.consumers, []
        for consumer in consumers:
            consumer.channel.cancel(consumer)

    # Messages

    def publish(
        self, exchange: str, key: str, properties: bytes, body: bytes, *, session: Session | None = None
    ) -> list[Message]:
        """Where it went; `when_safe` says when it is on disk there."""
        by_default = [key] if key in self.queues else []
        names = by_default if exchange == DEFAULT else self.routing.route(exchange, key)
        is_persistent = _is_persistent(properties)
        seen = Message(0, exchange, key, properties, body, is_persistent)
        self.on_published(session, seen, names)
        return [self.queues[name].put(Message(0, exchange, key, properties, body, is_persistent)) for name in names]

    def when_safe(self, messages: list[Message], confirm: Callable[[], None]) -> None:
        """In the order of publishing."""
        era = self._era
        self._safe_at = max(self._safe_at + 1e-9, self.now + self._chance.random() * self.slowest_disk)

        def synced() -> None:
            if self._era == era:
                for message in messages:
                    message.is_safe = True
                confirm()

        self.network.later(self._safe_at, synced)

    # Faults

    def stop(self) -> None:
        """Dies; what isn't durable is gone, and what isn't on disk may be."""
        self.is_up = False
        self._era += 1
        self.alarm = ""
        for session in tuple(self.sessions):
            for queue in self.queues.values():  # nothing is delivered any more
                queue.consumers.clear()
            session.drop()
        for queue in tuple(self.queues.values()):
            if not queue.durable or queue.owner is not None:
                self.delete_queue(queue)
                continue
            for message in tuple(queue.unacked):
                queue.give_back([message])
            queue.ready = [each for each in queue.ready if each.persistent and self._survives(each)]
        for exchange in [each for each in self.routing.exchanges.values() if not each.durable]:
            self.routing.delete(exchange.name)

    def _survives(self, message: Message) -> bool:
        return message.is_safe or self._chance.random() < 0.5

    def start(self) -> None:
        self.is_up = True

    def set_alarm(self, reason: str) -> None:
        self.alarm = reason
        for session in tuple(self.sessions):
            session.show_alarm()


def _is_persistent(properties: bytes) -> bool:
    """The delivery mode is the fourth property; those before it are skipped."""
    (flags,) = struct.unpack_from(">H", properties)
    if not flags & _DELIVERY_MODE:
        return False
    at = 2
    for flag in (0x8000, 0x4000):  # content type and encoding
        if flags & flag:
            at += 1 + properties[at]
    if flags & 0x2000:  # headers
        at += 4 + int(struct.unpack_from(">I", properties, at)[0])
    return properties[at] == 2
