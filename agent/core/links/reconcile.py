"""Reconciliation: from the links that are wanted and those that run to actions that start, restart, keep and end links.

The runtime executes the actions in their order. No I/O here, and each link has one action at most. A running link is
restarted if its definition changed in more than what can be applied while it runs.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from hashlib import sha256
from typing import Final, Protocol, TypeAlias

from agent.core import fields
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import AmqpUri
from agent.core.model import ExchangeLink, Link, NativeLink, QueueLink, ShovelLink, VhostState, native_link
from agent.core.rules.names import STANDBY
from agent.errors import Place

Address: TypeAlias = tuple[str, int, str]
Key: TypeAlias = tuple[str, str, str]


class Running(Protocol):
    """A link that runs, or is being removed."""

    link: Link

    @property
    def is_unwanted(self) -> bool:
        """True if nothing has defined the link since an earlier reading."""

    @property
    def may_be_removed(self) -> bool:
        """True if nothing else serves the link now that would miss what it built upstream."""


@dataclass(frozen=True, slots=True)
class RunLink:
    """The link is wanted: it begins where it doesn't run, and otherwise goes on under this definition."""

    link: Link
    restarts: bool = False
    is_native: bool = False  # the native plugin of the downstream runs it


@dataclass(frozen=True, slots=True)
class EndLink:
    """Nothing defines the link any more."""

    link_id: str
    removes: bool  # what it built upstream, later; otherwise all of that stays
    object_is_deleted: bool = False  # its exchange or queue, by somebody, rather than its definition


@dataclass(frozen=True, slots=True)
class DownstreamSeen:
    """The state of the downstream as it was read."""

    states: Mapping[str, VhostState]
    native_links: Container[NativeLink]
    sees: Callable[[str], bool]  # whether what is missing from a vhost is known to be deleted
    has_failed_over: bool = False
    """What waits for a standby's links is nowhere else, and stays at the lost source for who looks at it."""


def reconcile(
    wanted: Mapping[str, Link], running: Mapping[str, Running], seen: DownstreamSeen
) -> Iterator[RunLink | EndLink]:
    """The actions, ends first: a link that begins may need what another leaves. `running` may change between two
    actions."""
    queues = SharedQueues(wanted.values())
    for link_id in [each for each in running if each not in wanted]:
        if (found := running.get(link_id)) is not None:
            yield _end(found, seen, queues)
    for link in wanted.values():
        found = running.get(link.id)
        restarts = found is not None and needs_restart(found.link, link)
        yield RunLink(link, restarts, native_link(link) in seen.native_links)


def _end(running: Running, seen: DownstreamSeen, wanted: SharedQueues) -> EndLink:
    """The end of a link, with the removal of what it built upstream. That stays where the vhost can't be seen, since
    the link may be wanted again, and where another program or another link over the same queue uses it, such as that of
    a renamed upstream; and of a standby after a failover."""
    link = running.link
    is_lost = seen.has_failed_over and link.policy.startswith(STANDBY)
    is_needed = native_link(link) in seen.native_links or wanted.have_that_of(link) or not running.may_be_removed
    return EndLink(
        link.id,
        removes=link.cleans_up and not is_needed and not is_lost and seen.sees(link.vhost),
        object_is_deleted=not running.is_unwanted and _is_deleted(link, seen),
    )


def _is_deleted(link: Link, seen: DownstreamSeen) -> bool:
    """True if the link's exchange or queue was deleted by somebody, rather than by the broker."""
    state = seen.states.get(link.vhost)
    if state is None or not seen.sees(link.vhost):
        return False
    match link:
        case ExchangeLink(name=name, exchange=exchange):
            return name not in state.exchanges and exchange.durable and not exchange.auto_delete
        case QueueLink(name=name, queue=queue):
            may_go = queue.auto_delete or fields.get(queue.arguments, "x-expires") is not None
            return name not in state.queues and queue.durable and not may_go
        case _:
            return False


class SharedQueues:
    """The wanted links by their queue upstream: several may have their messages from one, as those of a renamed
    upstream have."""

    def __init__(self, links: Iterable[Link]) -> None:
        self._links: dict[Key, list[ExchangeLink]] = defaultdict(list)
        for link in links:
            if isinstance(link, ExchangeLink):
                self._links[_key(link)].append(link)

    def have_that_of(self, link: Link) -> bool:
        """True if one of these links has its messages from the queue of the given link."""
        if not isinstance(link, ExchangeLink):
            return False
        return any(_addresses(link) & _addresses(each) for each in self._links.get(_key(link), ()))


def _key(link: ExchangeLink) -> Key:
    return link.vhost, link.name, link.remote_name


def _addresses(link: ExchangeLink) -> set[Address]:
    """The host, port and vhost of each URI of the link, whatever its user and parameters."""
    return {(uri.connect_host.lower(), uri.connect_port, uri.vhost(link.vhost)) for uri in link.uris}


_ANYWHERE: Final = Place("")
_ANY: Final = Secret("")
_DIGITS: Final = 16


def needs_restart(running: Link, wanted: Link) -> bool:
    """True if the change needs a restart. These don't: another policy that asks for the same link, another place of its
    definition, another password of the same user, `lag-critical`, which is only compared with, `management`, which no
    message needs, and another `rate-limit`. A link that had none needs a connection of its own for it."""
    needs_connection = running.settings.rate_limit is None and wanted.settings.rate_limit is not None
    return running != wanted and (needs_connection or _essence(running) != _essence(wanted))


def has_other_passwords(running: Link, wanted: Link) -> bool:
    """True if the next connection has to log in with another password than the last one. Any difference of the URIs
    counts, so this is for definitions that need no restart."""
    return _all_uris(running) != _all_uris(wanted)


def differ_in_passwords(former: Sequence[AmqpUri], now: Sequence[AmqpUri]) -> bool:
    """True if these are the same addresses and users in the same order, with other passwords."""
    return former != now and _without_passwords(former) == _without_passwords(now)


def _all_uris(link: Link) -> tuple[AmqpUri, ...]:
    if isinstance(link, ShovelLink):
        return (*link.uris, *link.shovel.source_uris, *link.shovel.destination_uris)
    return link.uris


def _without_passwords(uris: Iterable[AmqpUri]) -> tuple[AmqpUri, ...]:
    """The URIs without the values of passwords. A URI with a user and no password logs in as guest does, so it stays
    different from one with a password."""
    return tuple(uri if uri.password is None else replace(uri, password=_ANY) for uri in uris)


def _essence(link: Link) -> Link:
    if isinstance(link, ShovelLink):
        return _shovel_essence(link)
    uris, settings = _without_passwords(link.uris), replace(link.settings, lag_critical=None, rate_limit=None)
    plain = replace(link, uris=uris, management=(), policy="", settings=settings)
    if isinstance(plain, ExchangeLink):
        return replace(plain, exchange=replace(plain.exchange, policy=None))
    return replace(plain, queue=replace(plain.queue, policy=None))


def _shovel_essence(link: ShovelLink) -> ShovelLink:
    shovel = replace(
        link.shovel,
        source_uris=_without_passwords(link.shovel.source_uris),
        destination_uris=_without_passwords(link.shovel.destination_uris),
        place=_ANYWHERE,
        settings=replace(link.settings, lag_critical=None, rate_limit=None),
    )
    return replace(link, uris=_without_passwords(link.uris), shovel=shovel)


def asks_the_same(former: Link, now: Link) -> bool:
    """True if two definitions differ at most in credentials, in how fast messages may move, or in what is only compared
    with. Such a difference is no reason to move again what a shovel has moved, or counted, before."""
    if isinstance(former, ShovelLink) and isinstance(now, ShovelLink):
        return _asked(former) == _asked(now)
    return not needs_restart(former, now)


def purpose_of(link: Link) -> str:
    """A digest of what a link is defined for: the same for definitions that ask for the same."""
    if isinstance(link, ShovelLink):
        shovel, addresses = _asked(link)
        what: object = (_written(shovel), addresses)
    else:
        what = _written(_essence(link))
    return sha256(repr(what).encode()).hexdigest()[:_DIGITS]


def _written(value: object) -> object:
    """The value without settings that have their default, so that a setting that a later release adds changes
    nothing."""
    if not is_dataclass(value) or isinstance(value, type):
        return value
    given = [(each, getattr(value, each.name)) for each in dataclasses.fields(value) if each.init]
    return type(value).__name__, [(each.name, _written(item)) for each, item in given if item != each.default]


def _asked(link: ShovelLink) -> tuple[ShovelLink, list[list[str]]]:
    """The definition without addresses, and those of source and destination as they may be shown."""
    essence = _shovel_essence(link)
    shovel = replace(essence.shovel, source_uris=(), destination_uris=())
    addresses = [[uri.safe for uri in uris] for uris in (link.shovel.source_uris, link.shovel.destination_uris)]
    return replace(essence, uris=(), shovel=shovel), addresses


def leads_elsewhere(former: Iterable[str], now: Iterable[str]) -> bool:
    """True if none of a link's addresses is one that it had, so that what it knows may be of another broker.

    Names can't tell: brokers that definitions are copied between have the same cluster name.
    """
    return not set(former) & set(now)
