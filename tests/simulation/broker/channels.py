"""One channel of a session: what its methods do and answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from agent.amqp.wire import frames, methods
from agent.amqp.wire.methods import Call, Method
from agent.core.fields import Table
from tests.simulation.broker import events
from tests.simulation.broker.exchanges import DEFAULT, TYPES, UPSTREAM, Binding, Exchange
from tests.simulation.broker.queues import DELETED, GONE_UNTOLD, Consumer, Message, Queue
from tests.simulation.loop import Process

if TYPE_CHECKING:
    from tests.simulation.broker.sessions import Session

NOT_FOUND: Final = 404
ACCESS_REFUSED: Final = 403
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
NOT_ALLOWED: Final = 530
COMMAND_INVALID: Final = 503
NO_ROUTE: Final = 312
LONGEST: Final = 255  # text of a refusal
WORDS: Final = {
    NOT_FOUND: "NOT_FOUND",
    ACCESS_REFUSED: "ACCESS_REFUSED",
    RESOURCE_LOCKED: "RESOURCE_LOCKED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED",
    NOT_ALLOWED: "NOT_ALLOWED",
    COMMAND_INVALID: "COMMAND_INVALID",
}


class Refused(Exception):  # noqa: N818 - it ends the channel, or the connection
    def __init__(self, code: int, text: str, *, ends_connection: bool = False) -> None:
        found = f"{WORDS[code]} - {text}"
        super().__init__(found if len(found) <= LONGEST else found[: LONGEST - 3] + "...")
        self.code = code
        self.ends_connection = ends_connection


class Channel:
    def __init__(self, session: Session, number: int) -> None:
        self.session = session
        self.number = number
        self.is_closed = False
        self._broker = session.broker
        self.pid = session.broker.made_up_name()
        self._consumers: dict[str, Consumer] = {}
        self._unacked: dict[int, tuple[Message, Queue, Consumer | None]] = {}
        self._last_tag = 0
        self._prefetch = 0
        self._confirms = False
        self._published = 0
        self._unconfirmed: dict[int, None] = {}
        self._content: Call | None = None
        self._size = 0
        self._properties = b""
        self._body = bytearray()
        self._last_made_up = 0

    @property
    def process(self) -> Process | None:
        """Whose it is; nobody's once they have left it, though the broker may not know that yet."""
        stream = self.session.stream
        return None if stream.client_is_gone else stream.process

    # Frames

    def received(self, kind: int, payload: bytes) -> None:
        if kind == frames.HEADER:
            _, _, self._size = frames.BASIC_HEADER.unpack_from(payload)
            self._properties = payload[frames.BASIC_HEADER.size :]
            self._body.clear()
        elif kind == frames.BODY:
            self._body += payload
        else:
            call = self.session.decode(payload)
            if call.method is methods.BASIC_PUBLISH:
                self._content = call
            else:
                _HANDLERS[call.method.ids](self, call)
            return
        if self._content is not None and len(self._body) >= self._size:
            call, self._content = self._content, None
            self._publish(call, self._properties, bytes(self._body))

    def say(self, method: Method, **values: Any) -> None:
        self.session.say_on(self.number, method, **values)

    def _answer(self, call: Call, method: Method, **values: Any) -> None:
        """Nothing where no answer is wanted."""
        if not call.values.get("nowait"):
            self.say(method, **values)

    def _say_content(self, method: Method, message: Message, **values: Any) -> None:
        begin = frames.frame(frames.METHOD, self.number, method.encode(**values))
        content = frames.content(self.number, message.properties, message.body, self.session.frame_max)
        self.session.write(begin + content)

    def end(self) -> None:
        """What isn't acknowledged goes back."""
        if self.is_closed:
            return
        self.is_closed = True
        is_told = self._broker.tells_of_each_consumer
        for consumer in tuple(self._consumers.values()):
            consumer.queue.leave(consumer, DELETED if is_told else GONE_UNTOLD)
        count = None if is_told else len(self._consumers)
        self._broker.tell(lambda: events.channel_closed(self.pid, count))
        self._consumers.clear()
        by_queue: dict[Queue, list[Message]] = {}
        for message, queue, _ in self._unacked.values():
            by_queue.setdefault(queue, []).append(message)
        self._unacked.clear()
        for queue, messages in by_queue.items():
            queue.give_back(messages)

    # Objects

    def _open(self, call: Call) -> None:
        self.say(methods.CHANNEL_OPEN_OK)

    def _close(self, call: Call) -> None:
        self.end()
        self.say(methods.CHANNEL_CLOSE_OK)
        self.session.forget(self.number)

    def _declare_exchange(self, call: Call) -> None:
        name, routing = call["exchange"], self._broker.routing
        standing = routing.exchanges.get(name)
        if call["passive"]:
            if standing is None and name != DEFAULT:
                raise Refused(NOT_FOUND, f"no exchange '{name}' in vhost '/'")
        else:
            self._check_type(call["type"])
            if standing is None:
                if name.startswith("amq."):
                    raise Refused(ACCESS_REFUSED, f"exchange name '{name}' contains reserved prefix 'amq.*'")
                flags = {key: call[key] for key in ("durable", "auto_delete", "internal")}
                made = routing.exchanges[name] = Exchange(name, call["type"], **flags, arguments=call["arguments"])
                self._broker.tell(lambda: events.exchange_created(made))
            else:
                _check_same(
                    f"exchange '{name}'", standing, call, ("type", "durable", "auto_delete", "internal"), self._broker
                )
        self._answer(call, methods.EXCHANGE_DECLARE_OK)

    def _check_type(self, kind: str) -> None:
        if kind in TYPES or (kind == UPSTREAM and self._broker.has_plugin):
            return
        if self._broker.outlives_unknown_types:
            raise Refused(PRECONDITION_FAILED, f"invalid exchange type '{kind}'")
        raise Refused(COMMAND_INVALID, f"unknown exchange type '{kind}'", ends_connection=True)

    def _delete_exchange(self, call: Call) -> None:
        name, routing = call["exchange"], self._broker.routing
        if name == DEFAULT or name.startswith("amq."):
            raise Refused(ACCESS_REFUSED, f"deletion of system exchange '{name}' in vhost '/' not allowed")
        if call["if_unused"] and next(routing.bound_from(name), None) is not None:
            raise Refused(PRECONDITION_FAILED, f"exchange '{name}' in vhost '/' in use")
        routing.delete(name)
        self._answer(call, methods.EXCHANGE_DELETE_OK)

    def _binding(self, call: Call) -> Binding:
        if "queue" in call.values:
            source, destination, to_queue = call["exchange"], call["queue"], True
        else:
            source, destination, to_queue = call["source"], call["destination"], False
        return Binding(source, destination, to_queue, call["routing_key"], call["arguments"])

    def _check_ends(self, binding: Binding) -> None:
        if DEFAULT in {binding.source, "" if binding.to_queue else binding.destination} and (
            binding.source == DEFAULT or not binding.to_queue
        ):
            raise Refused(ACCESS_REFUSED, "operation not permitted on the default exchange")
        if binding.source not in self._broker.routing.exchanges:
            raise Refused(NOT_FOUND, f"no exchange '{binding.source}' in vhost '/'")
        if binding.to_queue:
            self._queue(binding.destination)
        elif binding.destination not in self._broker.routing.exchanges:
            raise Refused(NOT_FOUND, f"no exchange '{binding.destination}' in vhost '/'")

    def _bind(self, call: Call) -> None:
        binding = self._binding(call)
        self._check_ends(binding)
        if binding not in self._broker.routing.bindings:
            self._broker.routing.bindings[binding] = None
            self._broker.tell(lambda: events.binding_changed("created", binding))
        self._answer(call, methods.QUEUE_BIND_OK if binding.to_queue else methods.EXCHANGE_BIND_OK)

    def _unbind(self, call: Call) -> None:
        binding = self._binding(call)
        self._broker.routing.unbind(binding)
        self._answer(call, methods.EXCHANGE_UNBIND_OK)

    def _declare_queue(self, call: Call) -> None:
        name, broker = call["queue"], self._broker
        standing = broker.queues.get(name) if name else None
        if call["passive"]:
            standing = self._queue(name)
        elif standing is None:
            name = name or broker.made_up_name()
            owner = self.session if call["exclusive"] else None
            standing = broker.make_queue(
                Queue(name, call["durable"], call["auto_delete"], owner, arguments=call["arguments"])
            )
        else:
            self._check_owner(standing)
            if call["exclusive"] and standing.owner is None:
                raise Refused(
                    RESOURCE_LOCKED,
                    f"cannot obtain exclusive access to locked queue '{name}' in vhost '/'. It could be originally "
                    "declared on another connection or the exclusive property value does not match that of the "
                    "original declaration.",
                )
            _check_same(f"queue '{name}'", standing, call, ("durable", "auto_delete"), broker)
        standing.used_at = broker.now
        self._answer(
            call,
            methods.QUEUE_DECLARE_OK,
            queue=standing.name,
            messages=len(standing.ready),
            consumers=len(standing.consumers),
        )

    def _queue(self, name: str) -> Queue:
        found = self._broker.queues.get(name)
        if found is None:
            raise Refused(NOT_FOUND, f"no queue '{name}' in vhost '/'")
        self._check_owner(found)
        return found

    def _check_owner(self, queue: Queue) -> None:
        if queue.owner not in {None, self.session}:
            raise Refused(
                RESOURCE_LOCKED,
                f"cannot obtain exclusive access to locked queue '{queue.name}' in vhost '/'. It could be originally "
                "declared on another connection or the exclusive property value does not match that of the original "
                "declaration.",
            )

    def _delete_queue(self, call: Call) -> None:
        name = call["queue"]
        found = self._broker.queues.get(name)
        if found is None:
            self._answer(call, methods.QUEUE_DELETE_OK, messages=0)
            return
        self._check_owner(found)
        if call["if_unused"] and found.consumers:
            raise Refused(PRECONDITION_FAILED, f"queue '{name}' in vhost '/' in use")
        if call["if_empty"] and found.ready:
            raise Refused(PRECONDITION_FAILED, f"queue '{name}' in vhost '/' not empty")
        count = len(found.ready)
        self._broker.delete_queue(found)
        self._answer(call, methods.QUEUE_DELETE_OK, messages=count)

    # Messages out of queues

    def _qos(self, call: Call) -> None:
        self._prefetch = call["prefetch_count"]
        self.say(methods.BASIC_QOS_OK)

    def _consume(self, call: Call) -> None:
        queue = self._queue(call["queue"])
        self._last_made_up += 1
        tag = call["consumer_tag"] or f"amq.ctag-{self._last_made_up}"
        if tag in self._consumers:
            raise Refused(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'", ends_connection=True)
        if queue.is_exclusively_consumed or (call["exclusive"] and queue.consumers):
            raise Refused(ACCESS_REFUSED, f"queue '{queue.name}' in vhost '/' in exclusive use")
        if call["exclusive"] and queue.is_single:
            raise Refused(
                ACCESS_REFUSED,
                f"queue '{queue.name}' in vhost '/' in exclusive use",
            )
        consumer = Consumer(
            self, queue, tag, call["no_ack"], call["exclusive"], self._prefetch, arguments=call["arguments"]
        )
        self._consumers[tag] = consumer
        self._answer(call, methods.BASIC_CONSUME_OK, consumer_tag=tag)
        queue.used_at = self._broker.now
        queue.consume(consumer)

    def _cancel(self, call: Call) -> None:
        consumer = self._consumers.pop(call["consumer_tag"], None)
        if consumer is not None:
            consumer.queue.leave(consumer)
        self._answer(call, methods.BASIC_CANCEL_OK, consumer_tag=call["consumer_tag"])

    def cancel(self, consumer: Consumer) -> None:
        """The queue is gone."""
        if self._consumers.pop(consumer.tag, None) is not None:
            self.say(methods.BASIC_CANCEL, consumer_tag=consumer.tag, nowait=True)

    def deliver(self, consumer: Consumer, message: Message) -> None:
        self._last_tag += 1
        if not consumer.no_ack:
            self._unacked[self._last_tag] = message, consumer.queue, consumer
        self._say_content(
            methods.BASIC_DELIVER,
            message,
            consumer_tag=consumer.tag,
            delivery_tag=self._last_tag,
            redelivered=message.redelivered,
            exchange=message.exchange,
            routing_key=message.key,
        )

    def _get(self, call: Call) -> None:
        queue = self._queue(call["queue"])
        queue.used_at = self._broker.now
        message = queue.take()
        if message is None:
            self.say(methods.BASIC_GET_EMPTY)
            return
        self._last_tag += 1
        if call["no_ack"]:
            queue.settle(message)
        else:
            self._unacked[self._last_tag] = message, queue, None
        self._say_content(
            methods.BASIC_GET_OK,
            message,
            delivery_tag=self._last_tag,
            redelivered=message.redelivered,
            exchange=message.exchange,
            routing_key=message.key,
            messages=len(queue.ready),
        )

    def _settled(self, call: Call) -> list[tuple[Message, Queue, Consumer | None]]:
        tag = call["delivery_tag"]
        if call["multiple"]:
            tags = [each for each in self._unacked if each <= tag or not tag]
        else:
            tags = [tag] if tag in self._unacked else []
        if not tags and tag:
            self._broker.on_unknown_tag(self.session, tag)
            raise Refused(PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        found = [self._unacked.pop(each) for each in tags]
        for _, _, consumer in found:
            if consumer is not None:
                consumer.unacked -= 1
        return found

    def _ack(self, call: Call) -> None:
        settled = self._settled(call)
        for message, queue, _ in settled:
            queue.settle(message)
        for queue in {queue: None for _, queue, _ in settled}:
            queue.pump()

    def _nack(self, call: Call) -> None:
        if not call["requeue"]:
            self._ack(call)
            return
        by_queue: dict[Queue, list[Message]] = {}
        for message, queue, _ in self._settled(call):
            by_queue.setdefault(queue, []).append(message)
        for queue, messages in by_queue.items():
            queue.give_back(messages)

    # Messages into queues

    def _select(self, call: Call) -> None:
        self._confirms = True
        self._answer(call, methods.CONFIRM_SELECT_OK)

    def _publish(self, call: Call, properties: bytes, body: bytes) -> None:
        name, key, broker = call["exchange"], call["routing_key"], self._broker
        self.session.publishes()
        if name != DEFAULT:
            exchange = broker.routing.exchanges.get(name)
            if exchange is None:
                raise Refused(NOT_FOUND, f"no exchange '{name}' in vhost '/'")
            if exchange.internal:
                raise Refused(ACCESS_REFUSED, f"cannot publish to internal exchange '{name}' in vhost '/'")
        number = 0
        if self._confirms:
            self._published += 1
            number = self._published
            self._unconfirmed[number] = None
        found = broker.publish(name, key, properties, body, session=self.session)
        if not found and call["mandatory"]:
            message = Message(0, name, key, properties, body, persistent=False)
            self._say_content(
                methods.BASIC_RETURN, message, code=NO_ROUTE, text="NO_ROUTE", exchange=name, routing_key=key
            )
        if number:
            broker.when_safe(found, lambda: self._confirm(number))
        elif any(message.persistent for message in found):
            broker.when_safe(found, lambda: None)

    def _confirm(self, number: int) -> None:
        """Brokers confirm several together where they can."""
        if self.is_closed or number not in self._unconfirmed:
            return
        del self._unconfirmed[number]
        self.say(methods.BASIC_ACK, delivery_tag=number, multiple=False)


def _check_same(what: str, standing: Any, call: Call, names: tuple[str, ...], broker: Any) -> None:
    def refused(name: str, theirs: str, ours: str) -> Refused:
        return Refused(
            PRECONDITION_FAILED,
            f"inequivalent arg '{name}' for {what} in vhost '/': received {theirs} but current is {ours}",
        )

    for name in names:
        if getattr(standing, name) != call[name]:
            raise refused(name, _shown(call[name]), _shown(getattr(standing, name)))
    if isinstance(standing, Queue):
        before, now = _arguments(standing.arguments), _arguments(call["arguments"])
        for name in sorted({*before, *now}):
            is_default = name == "x-queue-type" and {before.get(name), now.get(name)} == {None, "classic"}
            if before.get(name) != now.get(name) and not is_default:
                raise refused(name, "another value", "the current one")


def _arguments(table: Table) -> dict[str, Any]:
    return {name: field.value for name, field in table if name.startswith("x-") and name != "x-internal-purpose"}


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"'{value}'"


_HANDLERS: Final[Mapping[tuple[int, int], Callable[[Channel, Call], None]]] = {
    methods.CHANNEL_OPEN.ids: Channel._open,
    methods.CHANNEL_CLOSE.ids: Channel._close,
    methods.EXCHANGE_DECLARE.ids: Channel._declare_exchange,
    methods.EXCHANGE_DELETE.ids: Channel._delete_exchange,
    methods.EXCHANGE_BIND.ids: Channel._bind,
    methods.EXCHANGE_UNBIND.ids: Channel._unbind,
    methods.QUEUE_DECLARE.ids: Channel._declare_queue,
    methods.QUEUE_BIND.ids: Channel._bind,
    methods.QUEUE_DELETE.ids: Channel._delete_queue,
    methods.BASIC_QOS.ids: Channel._qos,
    methods.BASIC_CONSUME.ids: Channel._consume,
    methods.BASIC_CANCEL.ids: Channel._cancel,
    methods.BASIC_GET.ids: Channel._get,
    methods.BASIC_ACK.ids: Channel._ack,
    methods.BASIC_NACK.ids: Channel._nack,
    methods.CONFIRM_SELECT.ids: Channel._select,
}
