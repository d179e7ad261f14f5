"""One broker: its objects, its sessions, its disk, and what outlives it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from agent.amqp.broker_events import EVENT_EXCHANGE
from tests.simulation.broker import events
from tests.simulation.broker.api import PORT as API_PORT
from tests.simulation.broker.api import Api
from tests.simulation.broker.exchanges import DEFAULT, Exchange, Routing
from tests.simulation.broker.queues import CREATED, DELETED, GONE_UNTOLD, Consumer, Message, Queue
from tests.simulation.broker.sessions import Session
from tests.simulation.network import Network, Stream

AMQP_PORT: Final = 5672
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
        has_events: bool = False,
    ) -> None:
        self.network = network
        self.cluster = cluster
        self.version = version
        self.has_plugin = has_plugin
        self.is_up = True
        self.alarm = ""
        self.has_access = True  # whoever logs in, to the vhost
        self.routing = Routing()
        self.queues: dict[str, Queue] = {}
        self.sessions: dict[Session, None] = {}
        self.api = Api(self)
        self.routing.on_unbound = lambda binding: self.tell(lambda: events.binding_changed("deleted", binding))
        self.routing.on_deleted = lambda name: self.tell(lambda: events.exchange_deleted(name))
        if has_events:
            self.routing.exchanges[EVENT_EXCHANGE] = Exchange(EVENT_EXCHANGE, "topic", durable=True, internal=True)
        self.slowest_disk = 0.02
        self.on_published: Callable[[Session | None, Message, list[str]], None] = lambda session, message, to: None
        self.on_started: Callable[[], None] = lambda: None
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
        return self._release >= (3, 13, 3)

    @property
    def tells_of_each_consumer(self) -> bool:
        """Also of those that end with their channel."""
        return self._release < (3, 13)

    @property
    def _release(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.version.split("."))

    # Sessions

    def listen(self, host: str) -> None:
        self.network.servers[host, AMQP_PORT] = self
        self.network.servers[host, API_PORT] = self.api

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
        queue.on_consumer = self._consumer_changed
        self.tell(lambda: events.queue_created(queue))
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
        """Of its consumers the queue tells, and so do their channels."""
        self.queues.pop(queue.name, None)
        queue.ready.clear()
        queue.unacked.clear()
        consumers, queue.consumers = queue.consumers, []
        for consumer in consumers:
            self._consumer_changed(DELETED, consumer)
        self.routing.forget(queue.name, is_queue=True)
        self.tell(lambda: events.queue_deleted(queue))
        for consumer in consumers:
            self.tell(partial(events.consumer_changed, DELETED, consumer))
            consumer.channel.cancel(consumer)

    def _consumer_changed(self, what: str, consumer: Consumer) -> None:
        self.api.note(CREATED if what == CREATED else DELETED, consumer)
        if what != GONE_UNTOLD:
            self.tell(lambda: events.consumer_changed(what, consumer))

    def tell(self, event: Callable[[], events.Event]) -> None:
        """To whoever listens to what happens here."""
        if EVENT_EXCHANGE in self.routing.exchanges and any(self.routing.bound_from(EVENT_EXCHANGE)):
            name, headers = event()
            self._tell(name, events.properties_of(headers))

    def _tell(self, name: str, properties: bytes) -> None:
        for queue in self.routing.route(EVENT_EXCHANGE, name):
            if queue in self.queues:  # it may be the one that is being deleted
                self.queues[queue].put(Message(0, EVENT_EXCHANGE, name, properties, b"", persistent=True))

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
        self.api.stop()
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
        self.on_started()

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
