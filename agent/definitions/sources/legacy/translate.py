"""A 2.x federation as a current document, with comments on settings without a counterpart."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from agent.core.addresses.url_text import encode
from agent.core.model import DEFAULT_VHOST
from agent.definitions.sources.legacy.federation import APPLICATION, DOWNSTREAM_VARIABLE, LegacyFederation
from agent.definitions.sources.legacy.proplists import literal
from agent.definitions.sources.legacy.upstreams import EVERY_UPSTREAM
from agent.definitions.sources.legacy.yaml_writer import Block, BlockEntry

_AMQP = "127.0.0.1:5672"
_MANAGEMENT = "127.0.0.1:15672"
_SECRETS = "Passwords are not copied: set the variables that ${env:…} names, or read files with ${file:PATH}."
_PREFETCH = "prefetch-count, where not set: 2.x used 1000 messages; the agent adapts it to the path."
_HEARTBEAT = (
    "heartbeat, where not set: 2.x sent none, so a dead peer went unnoticed; the agent's default is 10 s "
    "(heartbeat: 0 turns it off)."
)
_VERIFY = (
    "amqps without verify: 2.x checked no certificate; the agent checks the peer's certificate, so name the "
    "authority with cacertfile (verify: verify_none does the same as 2.x)."
)
_SETS = (
    "2.x's sets and connections applied to every vhost; now each vhost has its own. Clients that declare federated "
    "exchanges in another vhost need them repeated below `vhosts:`. They declare the exchange with its own type "
    "instead of x-federation, and keep the argument upstream-set."
)
_NODENAME = (
    "local_nodename named the upstream queues; now the name of the downstream's cluster does. Queues and their "
    "backlog are kept if it is the same:"
)
_NO_NODENAME = (
    "local_nodename isn't set: 2.x named its upstream queues after rabbit@HOST, with the full host name. If the "
    "downstream's cluster has that name (`rabbitmqctl set_cluster_name`), the queues and their backlog are kept."
)
_BINDINGS = "The agent reads bindings through `management`: enable rabbitmq_management and give the user a tag for it."
_LATIN1 = "The file isn't UTF-8 and was read as Latin-1: look at names beyond ASCII."


def translate(federation: LegacyFederation, file: str, *, is_latin1: bool) -> Block:
    entries = (
        *_agent(federation),
        BlockEntry("downstream", _downstream(federation)),
        *_definitions(federation, DEFAULT_VHOST),
        *_vhosts(federation),
    )
    notes = [f"- {note}" for note in _notes(federation, is_latin1=is_latin1)]
    title = f"Imported from {file}: the 2.x federation plugin's settings as a configuration of federation-agent."
    return Block(entries, (title, *notes))


def _notes(federation: LegacyFederation, *, is_latin1: bool) -> Iterator[str]:
    connections = federation.connections.values()
    noted = {
        _SECRETS: federation.has_secrets,
        _PREFETCH: any(connection.sizes_prefetch for connection in connections),
        _HEARTBEAT: any(connection.keeps_heartbeat for connection in connections),
        _VERIFY: any(connection.gains_verification for connection in connections),
        _SETS: bool(federation.upstream_sets),
        _NO_NODENAME: federation.nodename is None,
        _LATIN1: is_latin1,
    }
    yield from (note for note, applies in noted.items() if applies)
    yield from (f"{APPLICATION} {note}" for note in federation.notes)


def _agent(federation: LegacyFederation) -> Iterator[BlockEntry]:
    if federation.nodename is None:
        return
    command = f"  rabbitmqctl set_cluster_name {shlex.quote(federation.nodename)}"
    yield BlockEntry("agent", Block((BlockEntry("name", literal(federation.nodename)),), (_NODENAME, command)))


def _downstream(federation: LegacyFederation) -> Block:
    if federation.username is None:
        login, note = "guest:guest", "local_username isn't set: 2.x used guest."
    else:
        login = f"{encode(federation.username)}:${{env:{DOWNSTREAM_VARIABLE}}}"
        note = (
            f"local_username needed no password within the broker; now it does: set {DOWNSTREAM_VARIABLE}, "
            "percent-encoded."
        )
    entries = (BlockEntry("uri", f"amqp://{login}@{_AMQP}"), BlockEntry("management", f"http://{login}@{_MANAGEMENT}"))
    return Block(entries, (note, _BINDINGS))


def _vhosts(federation: LegacyFederation) -> Iterator[BlockEntry]:
    others = dict.fromkeys(vhost for vhost, _ in federation.exchanges if vhost != DEFAULT_VHOST)
    if others:
        yield BlockEntry(
            "vhosts", Block(tuple(BlockEntry(vhost, Block(tuple(_definitions(federation, vhost)))) for vhost in others))
        )


def _definitions(federation: LegacyFederation, vhost: str) -> Iterator[BlockEntry]:
    """All definitions for the default vhost, where clients may declare more; for other vhosts those that their
    exchanges need."""
    exchanges = [exchange for (where, _), exchange in federation.exchanges.items() if where == vhost]
    sets, upstreams = federation.upstream_sets, federation.connections
    if vhost != DEFAULT_VHOST:
        used = {exchange.upstream_set for exchange in exchanges}
        sets = {key: upstream_set for key, upstream_set in sets.items() if key in used}
        needed = {member.connection for upstream_set in sets.values() for member in upstream_set.members}
        upstreams = {key: connection for key, connection in upstreams.items() if key in needed}
    named = tuple(BlockEntry(key, upstream_set.rows) for key, upstream_set in sets.items() if key != EVERY_UPSTREAM)
    sections = {
        "upstreams": tuple(BlockEntry(key, connection.block) for key, connection in upstreams.items()),
        "upstream-sets": named,
        "exchanges": tuple(BlockEntry(exchange.name, exchange.block) for exchange in exchanges),
    }
    yield from (BlockEntry(key, Block(entries)) for key, entries in sections.items() if entries)
