"""The needs of a standby besides its links: tags of both HTTP APIs' users, and permissions on what is copied and taken
out. A switchover needs those of moves, and a quiet moment: `standby promote --dry-run` looks at that."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from shlex import quote
from typing import Final

from agent.check.context import DEFAULT_VHOST, CheckContext, Endpoint, downstream_in
from agent.check.findings import Finding, Topic
from agent.check.http_api import BrokerApi
from agent.check.permissions import lacking
from agent.core.migration.objects import ObjectKey, ObjectKind, is_brokers_own
from agent.core.permissions import Need, Permission
from agent.core.rules.names import TRIMMING
from agent.core.standby.settings import StandbySettings
from agent.core.text.quantities import counted
from agent.definitions.sources.load import Configuration
from agent.links.ends import DOWNSTREAM

MOST_JUDGED: Final = 100  # objects of a vhost
TAGS: Final = ("monitoring", "policymaker")


@dataclass(frozen=True, slots=True)
class StandbyCheck:
    """`users` are those of the source's HTTP API and of the standby's; `chosen` is what there is to copy now."""

    settings: StandbySettings
    context: CheckContext
    source: BrokerApi | None
    users: tuple[str, str]
    chosen: dict[str, list[ObjectKey]]

    def needs(self) -> Iterator[tuple[Endpoint, list[Need]]]:
        brokers = (each for end, found in self.context.brokers.items() if end.where == DOWNSTREAM for each in found)
        asks = any(each.asks_for_configure for each in brokers)
        for vhost, every in self.chosen.items():
            chosen = every[:MOST_JUDGED]
            here = downstream_in(vhost, self.context.apis.downstream)
            if self.settings.keep is not None or self.settings.trim_after is not None:
                queues = [key.name for key in chosen if key.kind is ObjectKind.QUEUE]
                yield here, [*_to_take_out(queues, asks=asks)]
            why = "copying it and its bindings"
            copier = replace(here, uris=tuple(replace(uri, user=self.users[1]) for uri in here.uris))
            yield copier, [Need(permission, key.name, why) for key in chosen for permission in Permission]

    async def judge(self, visible: frozenset[str] | None) -> AsyncIterator[Finding]:
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
    return StandbyCheck(settings, context, source, (there[0].user, here[0].user), chosen)


async def _chosen(source: BrokerApi | None, vhost: str, settings: StandbySettings) -> list[ObjectKey]:
    """The exchanges and the queues to copy, each in alphabetical order; none where the source doesn't show them."""
    if source is None:
        return []
    found = {ObjectKind.EXCHANGE: await source.exchanges(vhost), ObjectKind.QUEUE: await source.queues(vhost)}
    keys = [ObjectKey(kind, vhost, name) for kind, names in found.items() for name in sorted(names or ())]
    return [key for key in keys if not is_brokers_own(key) and settings.follows(key)]


def _to_take_out(queues: list[str], *, asks: bool) -> Iterator[Need]:
    yield Need(Permission.CONFIGURE, TRIMMING, "that only one agent takes copies out")
    for queue in queues:
        yield Need(Permission.READ, queue, "taking copies out")
        if asks:
            yield Need(Permission.CONFIGURE, queue, "looking whether somebody consumes the copies")
