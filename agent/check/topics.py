"""Topic permissions: brokers ask for them besides those of the exchange, where a user has any for a topic exchange."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agent.check.connections import Endpoint
from agent.check.context import LinkEnds, Scene
from agent.check.findings import Finding, Level, Topic
from agent.core.links.reconcile import Verb
from agent.core.model import ExchangeLink
from agent.core.permissions import Permission, TopicGrant

MOST_NAMED = 10
TYPE = "topic"


async def judge_topics(scene: Scene) -> AsyncIterator[Finding]:
    """Of exchange links: the keys that would be bound upstream, and whether there are others that may not be published
    downstream."""
    for each in scene.links:
        link = each.link
        if not isinstance(link, ExchangeLink) or link.exchange.type != TYPE:
            continue
        for grant in await _grants(scene, each.source, link.remote_name):
            keys = sorted({action.name for action in each.planned.actions if action.verb is Verb.BIND})
            refused = [key for key in keys if grant.allows(Permission.READ, key) is False]
            if refused:
                yield _refused(each, grant, refused)
        for grant in await _grants(scene, each.destination, link.name):
            if not grant.allows_all(Permission.WRITE):
                yield _limited(each, grant)


async def _grants(scene: Scene, endpoint: Endpoint, exchange: str) -> list[TopicGrant]:
    api = scene.apis.of(endpoint)
    found: list[TopicGrant] = []
    for user, vhost in endpoint.accounts if api is not None else ():
        grants = await api.topic_grants(user) if api is not None else None
        found += [each for each in grants or () if (each.vhost, each.exchange) == (vhost, exchange)]
    return found


def _refused(each: LinkEnds, grant: TopicGrant, keys: list[str]) -> Finding:
    more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
    listed = ", ".join(map(repr, keys[:MOST_NAMED])) + more
    message = (
        f"the topic permissions of user {grant.user!r} in vhost {grant.vhost!r} don't allow to read from exchange "
        f"{grant.exchange!r} with the keys of bindings: {listed}"
    )
    return Finding(
        Level.ERROR, Topic.PERMISSIONS, _where(each.source), message, grant.command_to_read(keys), (each.label,)
    )


def _limited(each: LinkEnds, grant: TopicGrant) -> Finding:
    message = (
        f"user {grant.user!r} may publish to exchange {grant.exchange!r} in vhost {grant.vhost!r} only with keys that "
        f"match {grant.write!r}: what comes with others is refused, and goes to the quarantine"
    )
    return Finding(Level.NOTE, Topic.PERMISSIONS, _where(each.destination), message, "", (each.label,))


def _where(endpoint: Endpoint) -> str:
    return f"{endpoint.where} {endpoint.uris[0].host}:{endpoint.uris[0].connect_port}"
