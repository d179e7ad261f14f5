"""The needs of a standby besides its links: tags of both HTTP APIs' users, and permissions on what is copied and taken
out; and what a promotion needs besides, without which links run. A switchover also needs a quiet moment: `standby
promote --dry-run` looks at that."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from shlex import quote
from typing import Final

from agent.check.context import CheckContext, Endpoint, downstream_in, upstream
from agent.check.findings import Finding, Topic
from agent.check.http_api import BrokerApi
from agent.check.permissions import lacking
from agent.core.migration.objects import ObjectKey, ObjectKind, is_brokers_own
from agent.core.model import DEFAULT_VHOST, Definitions
from agent.core.permissions import DEFAULT_EXCHANGE, Need, Permission
from agent.core.rules.names import PROMOTING, TRIMMING
from agent.core.standby.copies import STREAM
from agent.core.standby.settings import StandbySettings
from agent.core.text import counted
from agent.definitions.sources.load import Configuration
from agent.downstream.reading import Reading
from agent.links.ends import DOWNSTREAM

MOST_JUDGED: Final = 100  # exchanges, and queues, of a vhost
TAGS: Final = ("monitoring", "policymaker")
_COPIED: Final = (ObjectKind.EXCHANGE, ObjectKind.QUEUE)
_TO_PROMOTE: Final = (
    Need(Permission.CONFIGURE, PROMOTING, "that only one command promotes", is_required=False),
    Need(Permission.WRITE, DEFAULT_EXCHANGE, "a switchover moves what the source still holds", is_required=False),
)
"""At the standby, besides taking copies out."""


@dataclass(frozen=True, slots=True)
class StandbyCheck:
    """`users` are those of the source's HTTP API and of the standby's; `chosen` is what there is to copy now."""

    settings: StandbySettings
    definitions: Definitions
    context: CheckContext
    source: BrokerApi | None
    users: tuple[str, str]
    chosen: dict[str, list[ObjectKey]]
    streams: dict[str, frozenset[str]]
    """At the source, by vhost: a switchover moves none."""

    def needs(self) -> Iterator[tuple[Endpoint, list[Need]]]:
        asks = self._asks(DOWNSTREAM)
        for vhost, every in self.chosen.items():
            by_kind = [[key for key in every if key.kind is kind][:MOST_JUDGED] for kind in _COPIED]
            chosen = [key for some in by_kind for key in some]
            here = downstream_in(vhost, self.context.apis.downstream)
            queues = [key.name for key in chosen if key.kind is ObjectKind.QUEUE]
            takes_out = self.settings.keep is not None or self.settings.trim_after is not None
            yield here, [*_to_take_out(queues, asks=asks, is_required=takes_out), *_TO_PROMOTE]
            if (origin := self.settings.upstream(vhost, self.definitions)) is not None and queues:
                there = upstream(origin.name, vhost, origin.uris, self.context.apis.downstream)
                moved = [queue for queue in queues if queue not in self.streams[vhost]]
                yield there, [*_to_move(moved, asks=self._asks(there.where))]
            why = "copying it and its bindings"
            copier = replace(here, uris=tuple(replace(uri, user=self.users[1]) for uri in here.uris))
            yield copier, [Need(permission, key.name, why) for key in chosen for permission in Permission]

    def _asks(self, where: str) -> bool:
        brokers = (each for end, found in self.context.brokers.items() if end.where == where for each in found)
        return any(each.asks_for_configure for each in brokers)

    async def to_be_made(self, reading: Reading) -> frozenset[str]:
        """The vhosts that the agent makes once it runs. The broker gives permissions in them to the user of the HTTP
        API, so links have to log in as that one."""
        own = self.context.apis.own
        tags = None if own is None else await own.tags()
        users = {uri.login[0] for uri in self.context.apis.downstream}
        may_make = tags is not None and "administrator" in tags and users == {self.users[1]}
        return reading.followed - reading.visible if may_make and reading.visible is not None else frozenset()

    async def judge(self, visible: frozenset[str] | None, to_be_made: frozenset[str]) -> AsyncIterator[Finding]:
        """`visible` are the vhosts of the standby, None if they can't be listed."""
        own = self.context.apis.own
        for api, user in zip((self.source, own), self.users, strict=True):
            tags = None if api is None else await api.tags()
            if api is None or tags is None:  # reported by itself
                continue
            if missing := lacking(tags, TAGS):
                message = f"user {user!r} lacks the tags {', '.join(missing)}: the standby can't follow its source"
                fix = f"rabbitmqctl set_user_tags {quote(user)} {' '.join(sorted({*tags, *TAGS}))}"
                yield Finding.error(Topic.PERMISSIONS, api.where, message, fix)
            absent = [] if api is not own or visible is None else sorted(self.settings.vhosts.keys() - visible)
            if absent and "administrator" not in tags:
                message = f"there is no vhost {', '.join(map(repr, absent))}, and user {user!r} may not make it"
                fix = " && ".join(f"rabbitmqctl add_vhost {quote(vhost)}" for vhost in absent)
                yield Finding.error(Topic.PERMISSIONS, api.where, message, fix)
        for vhost in sorted(to_be_made):
            message = f"there is no vhost {vhost!r} yet: the agent makes it when it runs"
            yield Finding.note(Topic.DEFINITIONS, DOWNSTREAM, message)
        number = sum(map(len, self.chosen.values()))
        message = (
            f"{self.settings.in_words}; {counted(number, 'exchange or queue', 'exchanges and queues')} to copy now"
        )
        yield Finding.note(Topic.DEFINITIONS, str(self.settings.place), message)


async def standby_check(configuration: Configuration, context: CheckContext) -> StandbyCheck | None:
    """None without a standby."""
    settings = configuration.settings.standby
    if settings is None:
        return None
    configured = context.apis.configured
    keys = (f"{vhost}/{settings.of}" for vhost in (*settings.vhosts, DEFAULT_VHOST))
    source = next((configured[key] for key in keys if key in configured), None)
    there, here = settings.management(configuration.definitions), configuration.settings.downstream.management
    chosen = {vhost: await _chosen(source, vhost, settings) for vhost in settings.vhosts}
    streams = {vhost: await _streams(source, vhost) for vhost in settings.vhosts}
    users = there[0].user, here[0].user
    return StandbyCheck(settings, configuration.definitions, context, source, users, chosen, streams)


async def _chosen(source: BrokerApi | None, vhost: str, settings: StandbySettings) -> list[ObjectKey]:
    """The exchanges and the queues to copy, each in alphabetical order; none where the source doesn't show them."""
    if source is None:
        return []
    found = {ObjectKind.EXCHANGE: await source.exchanges(vhost), ObjectKind.QUEUE: await source.queues(vhost)}
    keys = [ObjectKey(kind, vhost, name) for kind, names in found.items() for name in sorted(names or ())]
    return [key for key in keys if not is_brokers_own(key) and settings.follows(key)]


async def _streams(source: BrokerApi | None, vhost: str) -> frozenset[str]:
    queues = None if source is None else await source.queues(vhost)
    return frozenset(name for name, queue in (queues or {}).items() if queue.type == STREAM)


def _to_take_out(queues: list[str], *, asks: bool, is_required: bool) -> Iterator[Need]:
    """Where the agent takes out none, a switchover does."""
    yield Need(Permission.CONFIGURE, TRIMMING, "that only one agent takes copies out", is_required)
    for queue in queues:
        yield Need(Permission.READ, queue, "taking copies out", is_required)
        if asks:
            yield Need(Permission.CONFIGURE, queue, "looking whether somebody consumes the copies", is_required)


def _to_move(queues: list[str], *, asks: bool) -> Iterator[Need]:
    """At the source, of a switchover."""
    for queue in queues:
        yield Need(Permission.READ, queue, "a switchover moves what it holds", is_required=False)
        if asks:
            yield Need(Permission.CONFIGURE, queue, "a switchover looks what it holds", is_required=False)
