"""The rules of operators, around the changes of a kind of link: headers that are set, and headers that are removed.

What is set is added as prepared bytes, as the kind's own headers are. Only a message that may have one of the headers
that are set or removed is looked into, see `remaining`.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.amqp.data import header_table
from agent.amqp.data.header_table import Names
from agent.amqp.data.rewriting import Delivery, Rewriter
from agent.amqp.wire.tables import encode_value, short_string
from agent.core.fields import Table
from agent.core.rules.headers import prefix_of


def with_rules(rewriter: Rewriter, set_headers: Table, remove_headers: Sequence[str]) -> Rewriter:
    """The rewriter with these rules; itself without any."""
    return HeaderRules(rewriter, set_headers, remove_headers) if set_headers or remove_headers else rewriter


class HeaderRules:
    """Removes headers, then sets some before all that a message has, and leaves the rest to a kind's rewriter, whose
    own headers no rule may touch."""

    def __init__(self, kind: Rewriter, set_headers: Table, remove_headers: Sequence[str]) -> None:
        """Names that end with * are the beginnings of names."""
        prefixes = [prefix for each in remove_headers if (prefix := prefix_of(each)) is not None]
        removed = [each for each in remove_headers if prefix_of(each) is None]
        names = dict.fromkeys([*(name for name, _ in set_headers), *removed])
        self.marks = (*kind.marks, *map(short_string, names), *(short_string(prefix)[1:] for prefix in prefixes))
        self.changes = kind.changes
        self.varies = kind.varies
        self._kind = kind
        self._marks_of_kind = kind.marks
        self._names = Names(*names, prefixes=prefixes)
        self._set = b"".join(short_string(name) + encode_value(value) for name, value in set_headers)

    @property
    def version(self) -> int:
        return self._kind.version

    def entries(self, delivery: Delivery) -> bytes:
        return self._kind.entries(delivery) + self._set

    def rewrite(self, headers: bytes, delivery: Delivery) -> bytes | str:
        remaining = header_table.without(headers, self._names)
        return self._kind.rewrite(header_table.with_first(remaining, self._set), delivery)

    def remaining(self, headers: bytes) -> bytes | None:
        """The table that remains of a message's own once the rules have removed theirs, to have `entries` put first;
        None if the kind has to rewrite it. Raises CodecError as `rewrite` does."""
        remaining = header_table.without(headers, self._names)
        return None if any(remaining.find(mark) >= 0 for mark in self._marks_of_kind) else remaining
