"""The two ends of a link: the brokers that its messages come from and go to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from agent.amqp.connect import Connection, Wired, plain
from agent.amqp10.terminus import Terminus
from agent.core.addresses.uri import AmqpUri
from agent.core.model import (
    DEFAULT_VHOST,
    AckMode,
    AddressDestination,
    AddressSource,
    DeleteAfter,
    Link,
    Shovel,
    ShovelLink,
    ShovelPlace,
)
from agent.core.rules import names

DOWNSTREAM: Final = "downstream"
SHARED_HEARTBEAT: Final = 1  # seconds; a broker takes a connection for lost after two to three of them


@dataclass(frozen=True, slots=True)
class End:
    """A broker that any of the URIs leads to. Links whose ends are equal may share connections.

    `where` begins every error ("upstream origin"). `default_vhost` is for URIs that name none. `name` is what the
    broker shows of a connection; of links that share one, the first one's counts. With a `terminus`, the broker speaks
    AMQP 1.0.
    """

    where: str
    uris: tuple[AmqpUri, ...]
    default_vhost: str = "/"
    terminus: Terminus | None = None
    may_be_lost: bool = False  # over an error text with the link's names: such links share no connection with others
    name: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Ends:
    source: End
    destination: End


def federation_ends(link: Link, downstream: Sequence[AmqpUri], cluster: str) -> Ends:
    """The ends of a link that federates: its upstream, and the vhost of the downstream that it is defined in."""
    name = names.connection(link.upstream, link.policy)
    may_be_lost = not names.can_be_declared(link.remote_name, link.vhost, link.name, cluster)
    upstream = reachable(link.uris, link.vhost, downstream)
    return Ends(
        End(f"upstream {link.upstream}", upstream, link.vhost, may_be_lost=may_be_lost, name=name),
        End(DOWNSTREAM, tuple(uri.in_vhost(link.vhost) for uri in downstream), link.vhost, name=name),
    )


def shovel_ends(link: ShovelLink, downstream: Sequence[AmqpUri]) -> Ends:
    """The ends of a shovel. An error names the end and not the shovel, so that shovels between the same brokers share
    connections; wherever the error is shown, the shovel's name is beside it."""
    shovel, name = link.shovel, f"Shovel {link.name}"
    source = reachable(shovel.source_uris, DEFAULT_VHOST, downstream)
    destination = reachable(shovel.destination_uris, DEFAULT_VHOST, downstream)
    reading, writing = (terminus_of(shovel, place) for place in (shovel.source, shovel.destination))
    return Ends(
        _shovel_end("shovel source", source, shovel.source, reading, name),
        _shovel_end("shovel destination", destination, shovel.destination, writing, name),
    )


def _shovel_end(where: str, uris: tuple[AmqpUri, ...], place: ShovelPlace, terminus: Terminus | None, name: str) -> End:
    named = next(iter(place.keys.values()), "")
    may_be_lost = terminus is None and any(not names.can_be_declared(named, uri.vhost(DEFAULT_VHOST)) for uri in uris)
    return End(where, uris, DEFAULT_VHOST, terminus, may_be_lost=may_be_lost, name=name)


def terminus_of(shovel: Shovel, place: ShovelPlace) -> Terminus | None:
    """The address of one end of a shovel; None if that speaks AMQP 0-9-1."""
    is_bare = isinstance(shovel.source, AddressSource) and isinstance(shovel.destination, AddressDestination)
    match place:
        case AddressSource(address):
            return Terminus(
                address,
                is_source=True,
                is_bare=is_bare,
                filters=shovel.settings.consumer_arguments,
                link_name=shovel.settings.consumer_tag,
                is_counted=shovel.settings.delete_after is not DeleteAfter.NEVER,
            )
        case AddressDestination(address):
            settles_early = shovel.settings.ack_mode is not AckMode.ON_CONFIRM
            return Terminus(address, is_source=False, is_bare=is_bare, settles_early=settles_early)
    return None


def wired(terminus: Terminus | None, name: str) -> Wired:
    """Makes connections by the protocol of an end; the broker shows them as `name`."""
    if terminus is None:
        return plain
    from agent.amqp10.translator import translated  # noqa: PLC0415 - few agents need it, and all would start later

    return translated(terminus, name)


def reachable(uris: Iterable[AmqpUri], default_vhost: str, downstream: Sequence[AmqpUri]) -> tuple[AmqpUri, ...]:
    """The addresses to connect to: an empty host is the downstream itself, in the vhost that the URI names."""
    return tuple(
        each
        for uri in uris
        for each in (
            [own.in_vhost(uri.vhost(default_vhost)) for own in downstream] if uri.is_downstream_itself else [uri]
        )
    )


def written_uri(uris: Sequence[AmqpUri], connection: Connection) -> AmqpUri:
    """The defined URI that leads to the connection. For a connection to the downstream itself, which isn't made by a
    defined URI, that is the one with an empty host."""
    if connection.uri in uris:
        return connection.uri
    return next((uri for uri in uris if uri.is_downstream_itself), connection.uri)


def timed(uri: AmqpUri) -> AmqpUri:
    """The URI with the heartbeat of links that several agents share, unless it has its own."""
    return replace(uri, heartbeat=SHARED_HEARTBEAT) if uri.heartbeat is None else uri
