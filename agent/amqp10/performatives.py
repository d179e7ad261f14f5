"""AMQP 1.0's frames and what is in them: performatives and the other types with fields, a table each, and what encodes
and decodes by it.

The names of fields have underscores: `max_frame_size`. Their values are natural ones: int, bool, str, bytes; a tuple of
str where AMQP allows several symbols; a dict from str to Values where keys are symbols; `Performed` for a source,
target, error or state that is known here; and a `Value` where AMQP allows any type.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from agent.amqp.wire.tables import CodecError
from agent.amqp10 import types
from agent.amqp10.types import Value

AMQP: Final = 0
SASL: Final = 1

PROTOCOL_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"

PREFIX: Final = struct.Struct(">IBBH")  # size, data offset in words of 4 bytes, type, channel
OVERHEAD: Final = 8
SMALLEST: Final = 512  # the least max-frame-size that AMQP allows
EMPTY: Final = PREFIX.pack(OVERHEAD, 2, AMQP, 0)  # the heartbeat


def frame(channel: int, body: bytes, kind: int = AMQP) -> bytes:
    return PREFIX.pack(OVERHEAD + len(body), 2, kind, channel) + body


def find_frame(data: bytes, at: int, largest: int) -> tuple[int, int, int, int] | None:
    """Of the frame at `at`: type, channel, where its body begins, and its end; None if it isn't there as a whole."""
    if at + OVERHEAD > len(data):
        return None
    size, offset, kind, channel = PREFIX.unpack_from(data, at)
    if size > largest:
        raise CodecError(f"a frame of {size} bytes is larger than the {largest} that were agreed")
    if offset < 2 or 4 * offset > size:
        raise CodecError(f"a frame of {size} bytes can't begin its body at byte {4 * offset}")
    if kind > SASL:
        raise CodecError(f"unknown frame type {kind}")
    if at + size > len(data):
        return None
    return kind, channel, at + 4 * offset, at + size


MOST_FIELDS: Final = 32 * 1024
"""Bytes of all fields of one: 40 ms at worst, and far more than any broker sends."""
_NESTED: Final[Mapping[str, tuple[str, ...]]] = {
    "source": ("source",),
    "target": ("target",),
    "error": ("error",),
    "state": ("received", "accepted", "rejected", "released", "modified"),
}
"""Types of fields that are described lists, and which lists those are. Others in their place stay Values, so that
nothing nests without end."""
_NULL: Final = types.encode(types.NULL)


class FieldRule(NamedTuple):
    """`type` is AMQP's, any, symbols (one or an array), fields (a map with symbols as keys), or one of `_NESTED`."""

    name: str
    type: str
    default: Any


@dataclass(frozen=True, slots=True, eq=False)
class Performative:
    """A described list of fields. `absent` has the value of each where it is absent or null."""

    name: str
    code: int
    fields: tuple[FieldRule, ...] = field(repr=False)
    absent: Mapping[str, Any] = field(repr=False)
    mandatory: tuple[str, ...] = field(repr=False)

    @property
    def symbol(self) -> str:
        return f"amqp:{self.name}:list"

    def encode(self, **values: Any) -> bytes:
        """The bytes with these fields, in the shortest form. Also accepted: bytes for an encoded source, target, error
        or state; a Value for what isn't a number, boolean, string, symbol or binary."""
        lacking = [name for name in self.mandatory if values.get(name) is None]
        parts: list[bytes] = []
        length = 0  # up to the last one that isn't null
        for rule in self.fields:
            value = values.pop(rule.name, None)
            if value is None:
                parts.append(_NULL)
                continue
            parts.append(_encode(rule.type, value))
            length = len(parts)
        if values or lacking:
            raise TypeError(f"{self.name}: unknown {', '.join(values) or '-'}, missing {', '.join(lacking) or '-'}")
        return b"\x00\x53" + bytes((self.code,)) + types.encode_list(parts[:length])

    def read(self, data: bytes, at: int, end: int) -> tuple[Performed, int]:
        """The fields in the list at `at`, behind the descriptor, and where the list ends."""
        count, at, after = types.find_list(data, at, end)
        if after - at > MOST_FIELDS:
            raise CodecError(f"AMQP 1.0 {self.name} of {after - at} bytes: at most {MOST_FIELDS} are read")
        if count > len(self.fields):
            raise CodecError(f"AMQP 1.0 {self.name} with {count} fields: only {len(self.fields)} are known")
        values = dict(self.absent)
        for name, kind, _ in self.fields[:count]:
            if at < after and data[at] == types.NULL_CODE:
                at += 1
                continue
            try:
                values[name], at = _read(kind, data, at, after)
            except CodecError as error:
                raise CodecError(f"{self.name}.{name}: {error}") from error
        if at != after:
            raise CodecError(f"AMQP 1.0 {self.name} is longer than its {count} fields")
        for name in self.mandatory:
            if values[name] is None:
                raise CodecError(f"AMQP 1.0 {self.name} without {name}")
        return Performed(self, values), after


@dataclass(slots=True)
class Performed:
    """A received performative with all its fields: where one is absent, AMQP's default, or else None."""

    performative: Performative
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def decode(body: bytes, at: int = 0, *, end: int | None = None) -> tuple[Performed, int]:
    """The performative at `at`, and where it ends, which is where the payload of a transfer begins."""
    end = len(body) if end is None else min(end, len(body))
    performative, after = _descriptor(body, at, end)
    if performative is None:
        raise CodecError(f"unknown AMQP 1.0 performative {shown(types.decode(body, at + 1, end=end)[0])}")
    return performative.read(body, after, end)


def _descriptor(data: bytes, at: int, end: int) -> tuple[Performative | None, int]:
    """The performative of the descriptor at `at`, if that is known, and the descriptor's end."""
    if data[at : at + 2] == b"\x00\x53" and at + 2 < end:
        return BY_DESCRIPTOR.get(data[at + 2]), at + 3
    if at >= end or data[at]:
        raise CodecError("an AMQP 1.0 performative without a descriptor")
    descriptor, after = types.decode(data, at + 1, end=end)
    is_known = descriptor.type in {"ulong", "symbol"}
    return BY_DESCRIPTOR.get(descriptor.value) if is_known else None, after


def shown(descriptor: Value) -> str:
    """A descriptor for messages, which quote no text of a peer."""
    return str(descriptor.value) if descriptor.type == "ulong" else f"by a {descriptor.type}"


def _encode(kind: str, value: Any) -> bytes:
    if isinstance(value, Value):
        return types.encode(value)
    if kind in _NESTED:
        return bytes(value)
    if kind == "any":
        return types.encode(Value("string", value))
    if kind == "symbols":
        return types.encode(Value("symbol", value[0]) if len(value) == 1 else types.array_of("symbol", value))
    if kind == "fields":
        return types.encode(Value("map", tuple((Value("symbol", key), each) for key, each in value.items())))
    return types.encode(Value(kind, value))


def _read(kind: str, data: bytes, at: int, end: int) -> tuple[Any, int]:
    if kind in _NESTED and at < end and data[at] == 0:
        performative, after = _descriptor(data, at, end)
        if performative is not None and performative.name in _NESTED[kind]:
            return performative.read(data, after, end)
    value, at = types.decode(data, at, end=end)
    if value.type == kind:
        return value.value, at
    if kind == "any" or (kind in _NESTED and value.type == "described"):
        return value, at
    if kind == "fields" and value.type == "map":
        return {_key(key): each for key, each in value.value}, at
    if kind == "symbols" and value.type in {"symbol", "array"}:
        items = (value,) if value.type == "symbol" else value.value.items
        if all(item.type == "symbol" for item in items):
            return tuple(item.value for item in items), at
    raise CodecError(f"AMQP 1.0 {value.type} in place of {kind}")


def _key(key: Value) -> str:
    if key.type not in {"symbol", "string"}:
        raise CodecError(f"AMQP 1.0 {key.type} in place of a symbol")
    return str(key.value)


def described_list(name: str, code: int, spec: str = "") -> Performative:
    """`spec` has name:type of each field, with a `!` if it is mandatory, or `=` and its default."""
    fields = tuple(map(_rule, spec.split()))
    mandatory = tuple(each.partition(":")[0] for each in spec.split() if each.endswith("!"))
    return Performative(name, code, fields, {rule.name: rule.default for rule in fields}, mandatory)


def _rule(text: str) -> FieldRule:
    name, _, rest = text.partition(":")
    kind, _, default = rest.rstrip("!").partition("=")
    defaults: Mapping[str, Any] = {"": () if kind == "symbols" and rest != "symbols!" else None, "false": False}
    return FieldRule(
        name, kind, defaults[default] if default in defaults else int(default) if default.isdigit() else default
    )


OPEN: Final = described_list(
    "open",
    0x10,
    "container_id:string! hostname:string max_frame_size:uint=4294967295 channel_max:ushort=65535 idle_time_out:uint "
    "outgoing_locales:symbols incoming_locales:symbols offered_capabilities:symbols desired_capabilities:symbols "
    "properties:fields",
)
BEGIN: Final = described_list(
    "begin",
    0x11,
    "remote_channel:ushort next_outgoing_id:uint! incoming_window:uint! outgoing_window:uint! "
    "handle_max:uint=4294967295 offered_capabilities:symbols desired_capabilities:symbols properties:fields",
)
ATTACH: Final = described_list(
    "attach",
    0x12,
    "name:string! handle:uint! role:boolean! snd_settle_mode:ubyte=2 rcv_settle_mode:ubyte=0 source:source "
    "target:target unsettled:map incomplete_unsettled:boolean=false initial_delivery_count:uint max_message_size:ulong "
    "offered_capabilities:symbols desired_capabilities:symbols properties:fields",
)
FLOW: Final = described_list(
    "flow",
    0x13,
    "next_incoming_id:uint incoming_window:uint! next_outgoing_id:uint! outgoing_window:uint! handle:uint "
    "delivery_count:uint link_credit:uint available:uint drain:boolean=false echo:boolean=false properties:fields",
)
TRANSFER: Final = described_list(
    "transfer",
    0x14,
    "handle:uint! delivery_id:uint delivery_tag:binary message_format:uint settled:boolean more:boolean=false "
    "rcv_settle_mode:ubyte state:state resume:boolean=false aborted:boolean=false batchable:boolean=false",
)
DISPOSITION: Final = described_list(
    "disposition",
    0x15,
    "role:boolean! first:uint! last:uint settled:boolean=false state:state batchable:boolean=false",
)
DETACH: Final = described_list("detach", 0x16, "handle:uint! closed:boolean=false error:error")
END: Final = described_list("end", 0x17, "error:error")
CLOSE: Final = described_list("close", 0x18, "error:error")
ERROR: Final = described_list("error", 0x1D, "condition:symbol! description:string info:fields")
RECEIVED: Final = described_list("received", 0x23, "section_number:uint! section_offset:ulong!")
ACCEPTED: Final = described_list("accepted", 0x24)
REJECTED: Final = described_list("rejected", 0x25, "error:error")
RELEASED: Final = described_list("released", 0x26)
MODIFIED: Final = described_list(
    "modified", 0x27, "delivery_failed:boolean undeliverable_here:boolean message_annotations:map"
)
SOURCE: Final = described_list(
    "source",
    0x28,
    "address:any durable:uint=0 expiry_policy:symbol=session-end timeout:uint=0 dynamic:boolean=false "
    "dynamic_node_properties:fields distribution_mode:symbol filter:fields default_outcome:state outcomes:symbols "
    "capabilities:symbols",
)
TARGET: Final = described_list(
    "target",
    0x29,
    "address:any durable:uint=0 expiry_policy:symbol=session-end timeout:uint=0 dynamic:boolean=false "
    "dynamic_node_properties:fields capabilities:symbols",
)
SASL_MECHANISMS: Final = described_list("sasl-mechanisms", 0x40, "sasl_server_mechanisms:symbols!")
SASL_INIT: Final = described_list("sasl-init", 0x41, "mechanism:symbol! initial_response:binary hostname:string")
SASL_CHALLENGE: Final = described_list("sasl-challenge", 0x42, "challenge:binary!")
SASL_RESPONSE: Final = described_list("sasl-response", 0x43, "response:binary!")
SASL_OUTCOME: Final = described_list("sasl-outcome", 0x44, "code:ubyte! additional_data:binary")

BY_DESCRIPTOR: Final[Mapping[int | str, Performative]] = {
    descriptor: each
    for each in tuple(globals().values())
    if isinstance(each, Performative)
    for descriptor in (each.code, each.symbol)
}
