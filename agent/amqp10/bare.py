"""Messages that pass from one broker of AMQP 1.0 to another as they are, but for what belongs to a single hop.

Why: docs/decisions/0041-amqp10-by-translation.md
"""

from __future__ import annotations

from typing import Final, NamedTuple

from agent.amqp.wire.properties import Properties
from agent.amqp.wire.tables import decode_table
from agent.amqp10 import sections
from agent.amqp10.sections import HEADER, MESSAGE_ANNOTATIONS, find_sections
from agent.amqp10.types import Value
from agent.core.fields import Field

NO_PROPERTIES: Final = b"\x00\x00"
NO_ADDRESS: Final = b"\x00\x00"  # neither exchange nor routing key
_OF_MESSAGES: Final = ("durable", "priority", "ttl")  # the other fields of a header count what happened at one broker
_TYPES: Final = {"S": "string", "l": "long", "t": "boolean"}


class Taken(NamedTuple):
    """A message for the data path: properties, body, whether it came before; exchange and routing key, with their
    lengths."""

    properties: bytes
    body: bytes
    is_redelivered: bool
    address: bytes


def taken(message: bytes) -> Taken:
    """The message as the next broker gets it, as a body without properties: delivery annotations are for one hop, and
    so is what its header counts."""
    found = find_sections(message)
    begin, after = found.header
    if begin == after and found.delivery_annotations[0] == found.delivery_annotations[1]:
        return Taken(NO_PROPERTIES, message, is_redelivered=False, address=NO_ADDRESS)
    header = sections.header(message, found)
    kept = HEADER.encode(**{name: header[name] for name in _OF_MESSAGES})
    rest = message[found.delivery_annotations[1] :]
    return Taken(NO_PROPERTIES, kept + rest, is_redelivered=header["delivery_count"] > 0, address=NO_ADDRESS)


def annotated(message: bytes, properties: bytes) -> bytes:
    """The message with the headers that the data path has added as message annotations."""
    if properties == NO_PROPERTIES:
        return message
    added = decode_table(Properties.read(properties).raw_headers)[0]
    found = find_sections(message)
    names = {name for name, _ in added}
    begin, after = found.message_annotations
    former = [pair for pair in sections.pairs(message, (begin, after)) if pair[0].value not in names]
    pairs = (*former, *((Value("symbol", name), _value(field)) for name, field in added))
    return message[:begin] + sections.section(MESSAGE_ANNOTATIONS, Value("map", pairs)) + message[after:]


def _value(field: Field) -> Value:
    return Value(_TYPES[field.tag], field.value)
