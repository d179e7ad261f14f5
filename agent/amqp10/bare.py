"""Messages that pass from one broker of AMQP 1.0 to another as they are, but for what belongs to a single hop.

Why: docs/decisions/0041-amqp10-by-translation.md
"""

from __future__ import annotations

from typing import Final, NamedTuple

from agent.amqp.wire.tables import decode_table
from agent.amqp10 import types
from agent.amqp10.sections import HEADER, MESSAGE_ANNOTATIONS, Sections, find_sections
from agent.amqp10.types import Value
from agent.core.fields import Table

NO_PROPERTIES: Final = b"\x00\x00"
_KEPT: Final = 3  # fields of a header: durable, priority, ttl; the others count what happened at one broker


class Taken(NamedTuple):
    """A message for the data path: its properties, its body, whether it came before, and its exchange and routing key,
    with their lengths."""

    properties: bytes
    body: bytes
    is_redelivered: bool
    address: bytes
