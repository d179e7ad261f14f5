"""The permissions that links need, whether a user has them, and the command that grants them.

This is the one list; docs/permissions.md explains it, and a test compares both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from shlex import quote
from typing import Final

from agent.core.addresses.rabbitmq_address import AddressedObject, addressed
from agent.core.links.upstream_steps import upstream_queue_name
from agent.core.model import (
    AddressSource,
    ExchangeDestination,
    ExchangeLink,
    ExchangeSource,
    Link,
    QueueDestination,
    QueueLink,
    QueueSource,
    ShovelLink,
)
from agent.core.rules import names
from agent.core.rules.patterns import Pattern
from agent.core.rules.quarantine import QUEUE as QUARANTINE

DEFAULT_EXCHANGE: Final = "amq.default"
EVENTS: Final = "amq.rabbitmq.event"
GENERATED: Final = "amq.gen-"
PROBES: Final = names.AGENT_PREFIX + "probes "
MOST_NAMES: Final = 20  # in one pattern of a command; further names are replaced by their common beginning
_GENERATED_NAMES: Final = ("amq.gen-JzTY20BRgKO-HjmUJj0wLg", "amq.gen-x_8aPq0tZV1mWd3uYcRkEA")
NOTHING: Final = "^$"
_EVERYTHING: Final = frozenset({".*", "^.*", ".*$", "^.*$"})
_SPECIAL: Final = re.compile(r"([\\.^$|?*+()\[\]{}])")
_PREFIXES: Final = (names.QUEUE_PREFIX, names.AGENT_PREFIX)


class Permission(StrEnum):
    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """A permission that a link needs. Without one that isn't required, a link runs with a note. With `is_prefix` it is
    needed for all names that begin so."""

    permission: Permission
    on: str
    why: str
    is_required: bool = True
    is_prefix: bool = False

    @property
    def samples(self) -> tuple[str, ...]:
        if self.on == GENERATED:
            return _GENERATED_NAMES
        return (self.on, f"{self.on} A") if self.is_prefix else (self.on,)


@dataclass(frozen=True, slots=True)
class Grant:
    """A user's permissions in a vhost: three regular expressions."""

    configure: str = ""
    write: str = ""
    read: str = ""

    def allows(self, need: Need) -> bool | None:
        """True if the grant allows it; None if the pattern can't be evaluated here."""
        text: str = getattr(self, need.permission.value)
        try:
            pattern = Pattern(text or NOTHING)
        except ValueError:
            return None
        found = [pattern.matches(sample) for sample in need.samples]
        return None if None in found else all(found)


@dataclass(frozen=True, slots=True)
class TopicGrant:
    """The routing keys with which a user may publish to a topic exchange and bind to it; without a grant, all."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str

    def allows(self, permission: Permission, key: str) -> bool | None:
        """True if the grant allows the routing key; None if the pattern can't be evaluated here."""
        text: str = getattr(self, permission.value)
        text = text.replace("{username}", self.user).replace("{vhost}", self.vhost)
        if "{client_id}" in text:
            return None
        return Grant(**{permission.value: text}).allows(Need(permission, key, ""))

    def allows_all(self, permission: Permission) -> bool:
        return getattr(self, permission.value) in _EVERYTHING

    def command_to_read(self, keys: Iterable[str]) -> str:
        """The line that allows to bind with these keys, too, and keeps what the user has."""
        more = f"^({'|'.join(map(escaped, keys))})$"
        read = more if self.read in {"", NOTHING} else f"({self.read})|{more}"
        words = (self.vhost, self.user, self.exchange, self.write or NOTHING, read)
        return " ".join(["rabbitmqctl set_topic_permissions -p", *map(quote, words)])


@dataclass(frozen=True, slots=True)
class LinkNeeds:
    """The permissions that a link needs at each end."""

    source: tuple[Need, ...]
    destination: tuple[Need, ...]


def needs_of(link: Link, *, source_vhost: str, cluster: str, source_asks: bool, destination_asks: bool) -> LinkNeeds:
    """The permissions that a link needs. `cluster` is the downstream's name. Brokers that `ask` need the permission to
    declare a queue even of those who only look whether it exists, as releases from 4.3 on do."""
    match link:
        case ExchangeLink():
            publish = Need(Permission.WRITE, link.name, "publishing")
            source, received = _exchange_source(link, source_vhost, cluster), _probes(link)
            return LinkNeeds((*source, *_quarantine()), (publish, *received))
        case QueueLink():
            consume = Need(Permission.READ, link.remote_name, "consuming")
            look = _look(link.remote_name, "looking whether the queue exists", asked=source_asks)
            return LinkNeeds((consume, *look, *_quarantine()), tuple(_to_queue(link.name, asked=destination_asks)))
        case ShovelLink():
            return LinkNeeds(
                (
                    *_shovel_source(link, asked=source_asks),
                    *_stream_place(link, cluster),
                    *(() if isinstance(link.shovel.source, AddressSource) else _quarantine()),
                ),
                tuple(_shovel_destination(link, asked=destination_asks)),
            )


def needs_of_agent(exchanges: Iterable[str], *, with_events: bool) -> Iterator[Need]:
    """The permissions that the agent itself needs, in the vhost of `downstream.uri`. `exchanges` are those that it
    declares."""
    for permission in Permission:
        why = "sharing links with other agents, and remembering pauses"
        yield Need(permission, names.AGENT_PREFIX, why, is_required=False, is_prefix=True)
    yield from (Need(Permission.CONFIGURE, name, "declaring it") for name in exchanges)
    if with_events:
        yield from needs_of_events()


def needs_of_events() -> Iterator[Need]:
    """The permissions that the agent needs for events, in the vhost `/`."""
    for permission in Permission:
        yield Need(permission, GENERATED, "the broker's events", is_required=False, is_prefix=True)
    yield Need(Permission.READ, EVENTS, "the broker's events", is_required=False)


def _exchange_source(link: ExchangeLink, vhost: str, cluster: str) -> Iterator[Need]:
    queue, exchange = upstream_queue_name(link, vhost, cluster), link.remote_name
    yield Need(Permission.CONFIGURE, queue, "declaring the link's queue and internal exchange", is_prefix=True)
    yield Need(Permission.WRITE, queue, "binding them", is_prefix=True)
    yield Need(Permission.READ, queue, "consuming from the queue", is_prefix=True)
    yield Need(Permission.READ, exchange, "binding to the exchange")
    canary = names.canary(exchange, queue, vhost)
    if canary is not None:
        why = "noticing within seconds that the exchange was deleted"
        for permission, name in (
            (Permission.CONFIGURE, canary),
            (Permission.READ, canary),
            (Permission.WRITE, exchange),
        ):
            yield Need(permission, name, why, is_required=False)
    if link.settings.probe is not None:
        yield Need(Permission.WRITE, DEFAULT_EXCHANGE, "sending probes, without which the link is stalled")


def _probes(link: ExchangeLink) -> Iterator[Need]:
    if link.settings.probe is None:
        return
    why = "receiving probes, without which the link is stalled"
    yield Need(Permission.CONFIGURE, PROBES, why, is_prefix=True)
    yield Need(Permission.READ, PROBES, why, is_prefix=True)
    yield Need(Permission.WRITE, DEFAULT_EXCHANGE, why)


def _quarantine() -> Iterator[Need]:
    why = "quarantining messages that the destination can't take"
    yield Need(Permission.CONFIGURE, QUARANTINE, why, is_required=False)
    yield Need(Permission.WRITE, DEFAULT_EXCHANGE, why, is_required=False)


def _look(queue: str, why: str, *, asked: bool) -> Iterator[Need]:
    if asked:
        yield Need(Permission.CONFIGURE, queue, why)


def _to_queue(queue: str, *, asked: bool) -> Iterator[Need]:
    yield Need(Permission.WRITE, DEFAULT_EXCHANGE, "publishing to the queue")
    yield from _look(queue, "looking whether the queue exists and has consumers", asked=asked)


def _shovel_source(link: ShovelLink, *, asked: bool) -> Iterator[Need]:
    source = link.shovel.source
    if isinstance(source, QueueSource):
        yield Need(Permission.READ, source.queue, "consuming")
        yield from _look(source.queue, "looking whether the queue exists", asked=asked)
        return
    if isinstance(source, ExchangeSource):
        yield from _own_queue(source.exchange)
        return
    found = addressed(source.address)
    if found is None:
        return
    if found.kind == "exchange":  # before 4.0, by a queue for each link
        yield from _own_queue(found.name)
        return
    yield Need(Permission.READ, found.name, "consuming")
    yield from _declared(found)
    yield from _look(found.name, "looking whether the queue exists", asked=asked and not found.is_old)


def _own_queue(exchange: str) -> Iterator[Need]:
    for permission in Permission:
        yield Need(permission, GENERATED, "the shovel's own queue", is_prefix=True)
    yield Need(Permission.READ, exchange or DEFAULT_EXCHANGE, "binding to the exchange")


def _declared(found: AddressedObject) -> Iterator[Need]:
    if found.is_declared:
        yield Need(Permission.CONFIGURE, found.name, "declaring the queue, as its broker does for such an address")


def _stream_place(link: ShovelLink, cluster: str) -> Iterator[Need]:
    if not link.shovel.reads_stream:
        return
    why, queue = "remembering how far the stream is copied", names.stream_offset(link.vhost, link.name, cluster)
    yield Need(Permission.CONFIGURE, queue, why, is_required=False)
    yield Need(Permission.READ, queue, "finding out how far the stream is copied")
    yield Need(Permission.WRITE, DEFAULT_EXCHANGE, why, is_required=False)


def _shovel_destination(link: ShovelLink, *, asked: bool) -> Iterator[Need]:
    destination = link.shovel.destination
    if isinstance(destination, ExchangeDestination):
        if destination.exchange is not None:  # otherwise each message's own
            yield Need(Permission.WRITE, destination.exchange or DEFAULT_EXCHANGE, "publishing")
        return
    if isinstance(destination, QueueDestination):
        yield from _to_queue(destination.queue, asked=asked)
        return
    found = addressed(destination.address)
    if found is not None:
        exchange = found.name if found.kind == "exchange" else DEFAULT_EXCHANGE
        yield Need(Permission.WRITE, exchange, "publishing")
        yield from _declared(found)


def grant_command(vhost: str, user: str, needs: Iterable[Need], present: Grant | None = None) -> str:
    """The line that grants `needs` and keeps what the user has."""
    lacking = [need for need in needs if present is None or present.allows(need) is not True]
    patterns = [_pattern(each, [need for need in lacking if need.permission is each], present) for each in Permission]
    return " ".join(["rabbitmqctl set_permissions -p", quote(vhost), quote(user), *map(quote, patterns)])


def patterns_to_add(vhost: str, user: str, needs: Iterable[Need]) -> str:
    """Advice where it isn't known what the user has: a line to run would remove that."""
    return (
        f"add what is missing of {wanted_patterns(needs)} to the patterns of user {user!r} in vhost {vhost!r} "
        f"(rabbitmqctl list_permissions -p {quote(vhost)} shows them); set_permissions replaces all three, so repeat "
        "what is there"
    )


def wanted_patterns(needs: Iterable[Need]) -> str:
    needs = tuple(needs)
    found = ((each, [need for need in needs if need.permission is each]) for each in Permission)
    return ", ".join(f"{each} {quote(_pattern(each, wanted, None))}" for each, wanted in found if wanted)


def _pattern(permission: Permission, needs: list[Need], present: Grant | None) -> str:
    before = "" if present is None else getattr(present, permission.value)
    whole = {escaped(need.on) for need in needs if not need.is_prefix}
    begins = {escaped(need.on) for need in needs if need.is_prefix}
    if len(whole) + len(begins) > MOST_NAMES:
        begins = {next(filter(each.startswith, _PREFIXES), each) for each in begins}
        whole = {each for each in whole if not each.startswith(tuple(begins or {"\0"}))}
    words = sorted({*(f"{each}$" for each in whole), *begins})
    found = "" if not words else f"^{words[0]}" if len(words) == 1 else f"^({'|'.join(words)})"
    if before in {"", NOTHING}:
        return found or NOTHING
    return f"({before})|{found}" if found else before


def escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
