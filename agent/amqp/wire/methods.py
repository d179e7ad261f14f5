"""The AMQP 0-9-1 methods that the agent needs: names, numbers, arguments, and their bytes."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.amqp.wire.tables import CodecError, decode_table, encode_table, long_string, short_string

_NUMBERS: Final = {
    kind: struct.Struct(code) for kind, code in (("octet", ">B"), ("short", ">H"), ("long", ">I"), ("longlong", ">Q"))
}
_IDS: Final = struct.Struct(">HH")
# Of the methods that brokers send, only connection.start has a table: less than 1 KiB with RabbitMQ's own server
# properties, and an operator may add some. AMQP itself requires only 4096 bytes before limits are agreed on.
LARGEST: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Method:
    """A method of AMQP. `arguments` are (name, type); runs of `bit` share octets. `content`: a header and a body
    follow."""

    name: str
    ids: tuple[int, int]
    arguments: tuple[tuple[str, str], ...] = ()
    content: bool = False

    def encode(self, **values: Any) -> bytes:
        """The payload of a method frame; omitted arguments are zero, empty or false."""
        parts = [_IDS.pack(*self.ids)]
        bits: list[bool] = []
        for name, kind in self.arguments:
            if kind == "bit":
                bits.append(bool(values.pop(name, False)))
                continue
            parts.append(_pack_bits(bits))
            parts.append(_encode(kind, values.pop(name, None)))
        if values:
            raise TypeError(f"{self.name} has no {', '.join(values)}")
        return b"".join([*parts, _pack_bits(bits)])


@dataclass(frozen=True, slots=True)
class Call:
    """A received method."""

    method: Method
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def decode(payload: bytes) -> Call:
    if len(payload) > LARGEST:
        raise CodecError(f"a method of {len(payload)} bytes")
    try:
        method = BY_IDS[_IDS.unpack_from(payload)]
        return Call(method, _decode_arguments(method, payload))
    except KeyError:
        raise CodecError("an unknown method") from None
    except (struct.error, IndexError) as error:
        raise CodecError("a method is cut off") from error


def _decode_arguments(method: Method, payload: bytes) -> dict[str, Any]:
    values: dict[str, Any] = {}
    at, bit = 4, 0
    for name, kind in method.arguments:
        if kind == "bit":
            values[name] = bool(payload[at] >> bit & 1)
            bit += 1
            continue
        if bit:
            at, bit = at + 1, 0
        values[name], at = _decode(kind, payload, at)
    return values


def _decode(kind: str, payload: bytes, at: int) -> tuple[Any, int]:
    if number := _NUMBERS.get(kind):
        return number.unpack_from(payload, at)[0], at + number.size
    if kind == "table":
        return decode_table(payload, at)
    size, at = (payload[at], at + 1) if kind == "shortstr" else (_NUMBERS["long"].unpack_from(payload, at)[0], at + 4)
    if at + size > len(payload):
        raise CodecError("a string is cut off")
    return payload[at : at + size].decode("utf-8", "surrogateescape"), at + size


def _encode(kind: str, value: Any) -> bytes:
    match kind:
        case "shortstr":
            return short_string(value or "")
        case "longstr":
            return _NUMBERS["long"].pack(len(value)) + value if isinstance(value, bytes) else long_string(value or "")
        case "table":
            return encode_table(value or ())
        case _:
            return _NUMBERS[kind].pack(value or 0)


def _pack_bits(bits: list[bool]) -> bytes:
    """Pack the bits into one octet, if there are any, and empty the list."""
    if not bits:
        return b""
    octet = sum(bit << place for place, bit in enumerate(bits))
    bits.clear()
    return bytes((octet,))


def _method(name: str, ids: tuple[int, int], arguments: str = "", *, content: bool = False) -> Method:
    return Method(name, ids, tuple((part.split(":")[0], part.split(":")[1]) for part in arguments.split()), content)


_CLOSING = "code:short text:shortstr class_id:short method_id:short"

CONNECTION_START = _method(
    "connection.start", (10, 10), "major:octet minor:octet properties:table mechanisms:longstr locales:longstr"
)
CONNECTION_START_OK = _method(
    "connection.start-ok", (10, 11), "properties:table mechanism:shortstr response:longstr locale:shortstr"
)
CONNECTION_TUNE = _method("connection.tune", (10, 30), "channel_max:short frame_max:long heartbeat:short")
CONNECTION_TUNE_OK = _method("connection.tune-ok", (10, 31), "channel_max:short frame_max:long heartbeat:short")
CONNECTION_OPEN = _method("connection.open", (10, 40), "vhost:shortstr reserved1:shortstr reserved2:bit")
CONNECTION_OPEN_OK = _method("connection.open-ok", (10, 41), "reserved1:shortstr")
CONNECTION_CLOSE = _method("connection.close", (10, 50), _CLOSING)
CONNECTION_CLOSE_OK = _method("connection.close-ok", (10, 51))
CONNECTION_BLOCKED = _method("connection.blocked", (10, 60), "reason:shortstr")
CONNECTION_UNBLOCKED = _method("connection.unblocked", (10, 61))
CONNECTION_UPDATE_SECRET = _method("connection.update-secret", (10, 70), "new_secret:longstr reason:shortstr")
CONNECTION_UPDATE_SECRET_OK = _method("connection.update-secret-ok", (10, 71))
CHANNEL_OPEN = _method("channel.open", (20, 10), "reserved1:shortstr")
CHANNEL_OPEN_OK = _method("channel.open-ok", (20, 11), "reserved1:longstr")
CHANNEL_FLOW = _method("channel.flow", (20, 20), "active:bit")
CHANNEL_FLOW_OK = _method("channel.flow-ok", (20, 21), "active:bit")
CHANNEL_CLOSE = _method("channel.close", (20, 40), _CLOSING)
CHANNEL_CLOSE_OK = _method("channel.close-ok", (20, 41))
EXCHANGE_DECLARE = _method(
    "exchange.declare",
    (40, 10),
    "reserved1:short exchange:shortstr type:shortstr passive:bit durable:bit auto_delete:bit internal:bit "
    "nowait:bit arguments:table",
)
EXCHANGE_DECLARE_OK = _method("exchange.declare-ok", (40, 11))
EXCHANGE_DELETE = _method("exchange.delete", (40, 20), "reserved1:short exchange:shortstr if_unused:bit nowait:bit")
EXCHANGE_DELETE_OK = _method("exchange.delete-ok", (40, 21))
_EXCHANGE_BINDING = (
    "reserved1:short destination:shortstr source:shortstr routing_key:shortstr nowait:bit arguments:table"
)
EXCHANGE_BIND = _method("exchange.bind", (40, 30), _EXCHANGE_BINDING)
EXCHANGE_BIND_OK = _method("exchange.bind-ok", (40, 31))
EXCHANGE_UNBIND = _method("exchange.unbind", (40, 40), _EXCHANGE_BINDING)
EXCHANGE_UNBIND_OK = _method("exchange.unbind-ok", (40, 51))
QUEUE_DECLARE = _method(
    "queue.declare",
    (50, 10),
    "reserved1:short queue:shortstr passive:bit durable:bit exclusive:bit auto_delete:bit nowait:bit arguments:table",
)
QUEUE_DECLARE_OK = _method("queue.declare-ok", (50, 11), "queue:shortstr messages:long consumers:long")
QUEUE_BIND = _method(
    "queue.bind",
    (50, 20),
    "reserved1:short queue:shortstr exchange:shortstr routing_key:shortstr nowait:bit arguments:table",
)
QUEUE_BIND_OK = _method("queue.bind-ok", (50, 21))
QUEUE_DELETE = _method("queue.delete", (50, 40), "reserved1:short queue:shortstr if_unused:bit if_empty:bit nowait:bit")
QUEUE_DELETE_OK = _method("queue.delete-ok", (50, 41), "messages:long")
BASIC_QOS = _method("basic.qos", (60, 10), "prefetch_size:long prefetch_count:short global_:bit")
BASIC_QOS_OK = _method("basic.qos-ok", (60, 11))
BASIC_CONSUME = _method(
    "basic.consume",
    (60, 20),
    "reserved1:short queue:shortstr consumer_tag:shortstr no_local:bit no_ack:bit exclusive:bit nowait:bit "
    "arguments:table",
)
BASIC_CONSUME_OK = _method("basic.consume-ok", (60, 21), "consumer_tag:shortstr")
BASIC_CANCEL = _method("basic.cancel", (60, 30), "consumer_tag:shortstr nowait:bit")
BASIC_CANCEL_OK = _method("basic.cancel-ok", (60, 31), "consumer_tag:shortstr")
BASIC_PUBLISH = _method(
    "basic.publish",
    (60, 40),
    "reserved1:short exchange:shortstr routing_key:shortstr mandatory:bit immediate:bit",
    content=True,
)
BASIC_RETURN = _method(
    "basic.return", (60, 50), "code:short text:shortstr exchange:shortstr routing_key:shortstr", content=True
)
BASIC_DELIVER = _method(
    "basic.deliver",
    (60, 60),
    "consumer_tag:shortstr delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr",
    content=True,
)
BASIC_GET = _method("basic.get", (60, 70), "reserved1:short queue:shortstr no_ack:bit")
BASIC_GET_OK = _method(
    "basic.get-ok",
    (60, 71),
    "delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr messages:long",
    content=True,
)
BASIC_GET_EMPTY = _method("basic.get-empty", (60, 72), "reserved1:shortstr")
BASIC_ACK = _method("basic.ack", (60, 80), "delivery_tag:longlong multiple:bit")
BASIC_NACK = _method("basic.nack", (60, 120), "delivery_tag:longlong multiple:bit requeue:bit")
CONFIRM_SELECT = _method("confirm.select", (85, 10), "nowait:bit")
CONFIRM_SELECT_OK = _method("confirm.select-ok", (85, 11))

BY_IDS: Final[Mapping[tuple[int, ...], Method]] = {
    method.ids: method for method in tuple(globals().values()) if isinstance(method, Method)
}
_BY_NAME: Final = {method.name: method for method in BY_IDS.values()}
ANSWERS: Final = {
    method.ids: _BY_NAME[f"{method.name}-ok"] for method in BY_IDS.values() if f"{method.name}-ok" in _BY_NAME
}
"""What accepts a request, by the request's ids."""
