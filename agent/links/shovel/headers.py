"""The changes of a shovel to messages: properties, `x-shovelled` and `x-shovelled-timestamp`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Final

from agent.amqp.data import header_table
from agent.amqp.data.header_table import Names, keep_invalid
from agent.amqp.data.rewriting import Delivery, PropertyChanges, Rewriter, Untouched
from agent.amqp.wire.properties import encode
from agent.amqp.wire.tables import encode_value, short_string
from agent.core.addresses.uri import AmqpUri, Mechanism
from agent.core.fields import Field, array, long, table, text
from agent.core.model import AddressDestination, PublishProperties, ShovelLink
from agent.core.rules.headers import ANNOTATED_AT, ANNOTATIONS, SHOVELLED, SHOVELLED_AT

_SHOVELLED: Final = Names(SHOVELLED)
_TIMESTAMP: Final = Names(SHOVELLED_AT)
_ARRAY: Final = ord("A")


class ShovelHeaders:
    """Adds one header or both. An earlier shovel's entries stay behind the new one; its timestamp is replaced."""

    varies = False

    def __init__(self, entry: Field | None, clock: Callable[[], float] | None, changes: PropertyChanges) -> None:
        """`clock` returns seconds since 1970. None leaves a header out."""
        self.changes = changes
        self._clock = clock
        self._item = None if entry is None else encode_value(entry)
        self._shovelled = b"" if entry is None else header_table.entry(SHOVELLED, array(entry))
        written = ((SHOVELLED, self._item), (SHOVELLED_AT, self._clock))
        self.marks = tuple(short_string(name) for name, value in written if value is not None)

    @property
    def version(self) -> int:
        return 0 if self._clock is None else int(self._clock())

    def entries(self, _: Delivery) -> bytes:
        return self._shovelled + self._timestamp

    def rewrite(self, headers: bytes, _: Delivery) -> bytes | str:
        if self._clock is not None:
            headers = header_table.with_first(header_table.without(headers, _TIMESTAMP), self._timestamp)
        return headers if self._item is None else _with_first_item(headers, self._item)

    @property
    def _timestamp(self) -> bytes:
        return b"" if self._clock is None else header_table.entry(SHOVELLED_AT, long(self.version))


def _with_first_item(headers: bytes, item: bytes) -> bytes:
    """The headers with `item` first in `x-shovelled`. As with the plugin, a value that isn't an array is kept among the
    invalid headers."""
    found = header_table.find(headers, _SHOVELLED)
    added = header_table.with_first_item(headers, SHOVELLED, item)
    if found is None or headers[found.value] == _ARRAY:
        return added
    return keep_invalid(added, headers[found.value : found.after], name=SHOVELLED)


def rewriter(
    link: ShovelLink, *, source: str, destination: AmqpUri, shown: str, cluster: str, clock: Callable[[], float]
) -> Rewriter:
    """The rewriter of one shovel. `source` and `shown` are the two addresses as headers show them, `destination` is the
    one that is connected."""
    settings = link.settings
    if isinstance(link.shovel.destination, AddressDestination) or link.shovel.destination_is_local:
        return _annotations(link, destination, cluster=cluster, clock=clock)
    changes = PropertyChanges(_properties(settings.publish_properties), _users(destination))
    if not settings.add_forward_headers and not settings.add_timestamp_header:
        return Untouched(changes)
    entry = _shovelled(link, source=source, destination=shown, cluster=cluster)
    return ShovelHeaders(
        entry if settings.add_forward_headers else None, clock if settings.add_timestamp_header else None, changes
    )


class AddedAnnotations:
    """Headers that are message annotations to a consumer of AMQP 1.0, with the plugin's names, in place of those that a
    message has; the time is in milliseconds."""

    varies = False

    def __init__(self, added: dict[str, str], clock: Callable[[], float] | None, changes: PropertyChanges) -> None:
        self.changes = changes
        self._entries = b"".join(header_table.entry(name, text(value)) for name, value in added.items())
        self._clock = clock
        names = [*added] if clock is None else [*added, ANNOTATED_AT]
        self.marks = tuple(map(short_string, names))
        self._names = Names(*names)

    @property
    def version(self) -> int:
        return 0 if self._clock is None else 1000 * int(self._clock())

    def entries(self, _: Delivery) -> bytes:
        added = b"" if self._clock is None else header_table.entry(ANNOTATED_AT, long(self.version))
        return self._entries + added

    def rewrite(self, headers: bytes, delivery: Delivery) -> bytes | str:
        return header_table.with_first(header_table.without(headers, self._names), self.entries(delivery))


def _annotations(link: ShovelLink, destination: AmqpUri, *, cluster: str, clock: Callable[[], float]) -> Rewriter:
    settings = link.settings
    properties = _properties(settings.publish_properties) if link.shovel.destination_is_local else ()
    changes = PropertyChanges(properties, _users(destination))
    if not settings.add_forward_headers and not settings.add_timestamp_header:
        return Untouched(changes)
    named = dict(zip(ANNOTATIONS, (cluster, "dynamic", link.name), strict=True))
    return AddedAnnotations(
        named if settings.add_forward_headers else {}, clock if settings.add_timestamp_header else None, changes
    )


def _shovelled(link: ShovelLink, *, source: str, destination: str, cluster: str) -> Field:
    """The entry of `x-shovelled`, in the plugin's order."""
    values = {
        "shovelled-by": cluster,
        "shovel-type": "dynamic",
        "shovel-name": link.name,
        "shovel-vhost": link.vhost,
        "src-uri": source,
        "dest-uri": destination,
        **link.shovel.source.keys,
        **link.shovel.destination.keys,
    }
    return table(tuple((name, text(value)) for name, value in values.items()))


def _properties(wanted: PublishProperties) -> tuple[tuple[int, bytes], ...]:
    values = ((each.name, getattr(wanted, each.name)) for each in fields(wanted))
    return tuple(encode(name, value) for name, value in values if value is not None)


def _users(destination: AmqpUri) -> frozenset[bytes]:
    """The user ids that a broker lets pass: the connected user's. Empty if a client certificate may decide the user,
    which isn't known then."""
    user, _ = destination.login
    return frozenset() if Mechanism.EXTERNAL in destination.mechanisms else frozenset({user.encode()})
