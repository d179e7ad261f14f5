"""Decides whether a changed definition of a running link restarts it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from hashlib import sha256
from typing import Final

from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import AmqpUri
from agent.core.model import ExchangeLink, Link, ShovelLink
from agent.errors import Place

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
    given = [(each, getattr(value, each.name)) for each in fields(value) if each.init]
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
