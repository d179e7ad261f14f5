"""Clusters with any objects, as a broker or an export shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from agent.core.migration.difference import MigrationPlan
from agent.core.migration.objects import ClusterObjects, ObjectKind, Release
from agent.core.migration.selection import MovedBy, ObjectChoice, VhostSelection, everything
from agent.core.rules.patterns import Pattern
from agent.definitions.sources.cluster_objects import KINDS, ObjectsOfVhosts
from agent.errors import Place

OLD: Release = (3, 10, 8)
NEW: Release = (4, 3, 6)
HERE = Place("migration.yaml", 1, 1)
ALL = {"v": everything(HERE)}


def cluster(release: Release = OLD, **lists: Any) -> ClusterObjects:
    """A cluster with one vhost, `v`, of which `queues`, `exchanges`, `bindings`, `policies` are given."""
    found = ObjectsOfVhosts()
    found.add_vhost("v", lists.get("vhost", {}))
    for name, kind in KINDS.items():
        found.add(kind, "v", lists.get(name, ()))
    return ClusterObjects(
        "c",
        release,
        found.objects,
        frozenset(found.passing),
        lists.get("parameters", ()),
        lists.get("types"),
        found.unread,
    )


def empty(release: Release = NEW) -> ClusterObjects:
    return ClusterObjects("t", release)


def applied(target: ClusterObjects, plan: MigrationPlan) -> ClusterObjects:
    """The target once all that a plan does is done."""
    return replace(target, objects={**target.objects, **{each.key: each.body for each in plan.actions}})


def queue(name: str = "q", *, durable: bool = True, **arguments: Any) -> dict[str, Any]:
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    return {"name": name, "durable": durable, "arguments": named}


def exchange(name: str = "x", kind: str = "topic", **arguments: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "durable": True, "arguments": arguments}


def binding(source: str, destination: str, key: str = "k", *, to_exchange: bool = False) -> dict[str, Any]:
    to = "exchange" if to_exchange else "queue"
    found = {"source": source, "destination": destination, "destination_type": to, "routing_key": key}
    return {**found, "arguments": {}}


def policy(name: str = "p", pattern: str = ".*", **definition: Any) -> dict[str, Any]:
    named = {key.replace("_", "-"): value for key, value in definition.items()}
    return {"name": name, "pattern": pattern, "apply-to": "queues", "priority": 0, "definition": named}


def choice(pattern: str, moved_by: MovedBy = MovedBy.SHOVEL, *, to_quorum: bool = False, line: int = 1) -> ObjectChoice:
    return ObjectChoice(Pattern(pattern), Place("migration.yaml", line, 1), moved_by, to_quorum)


def selecting(*queues: ObjectChoice, exchanges: str = ".*", policies: str = ".*") -> dict[str, VhostSelection]:
    others = {ObjectKind.EXCHANGE: [choice(exchanges)], ObjectKind.POLICY: [choice(policies)]}
    return {"v": VhostSelection(HERE, {ObjectKind.QUEUE: queues, **others})}


_NAMES = st.sampled_from(["a", "b", "c", "amq.gen-1", "federation: a -> b", "ä\n"])
_ARGUMENTS = st.dictionaries(
    st.sampled_from(
        ["x-queue-type", "x-queue-version", "x-queue-mode", "x-max-length", "x-max-priority", "x-dead-letter-exchange"]
    ),
    st.sampled_from([1, 2, "quorum", "stream", "lazy", "a"]),
    max_size=3,
).map(lambda found: found if isinstance(found.get("x-queue-type", ""), str) else {})
_QUEUES = st.builds(
    lambda name, durable, exclusive, arguments: {
        "name": name,
        "durable": durable,
        "exclusive": exclusive,
        "arguments": arguments,
    },
    _NAMES,
    st.booleans(),
    st.booleans(),
    _ARGUMENTS,
)
_EXCHANGES = st.builds(exchange, _NAMES, st.sampled_from(["topic", "direct", "x-delayed-message"]))
_BINDINGS = st.builds(
    lambda source, destination, key, to: binding(source, destination, key, to_exchange=to),
    st.one_of(_NAMES, st.sampled_from(["", "amq.topic"])),
    _NAMES,
    st.sampled_from(["k", "#.#.#", ""]),
    st.booleans(),
)
_POLICIES = st.builds(
    lambda name, definition, apply_to: {**policy(name), "definition": definition, "apply-to": apply_to},
    _NAMES,
    st.dictionaries(
        st.sampled_from(["ha-mode", "max-length", "queue-mode", "shards-per-node", "federation-upstream-set"]),
        st.sampled_from([1, "all"]),
        min_size=1,
        max_size=2,
    ),
    st.sampled_from(["queues", "all", "quorum_queues", "exchanges"]),
)


def clusters(release: Release) -> st.SearchStrategy[ClusterObjects]:
    build: Callable[..., ClusterObjects] = cluster
    return st.builds(
        build,
        st.just(release),
        queues=st.lists(_QUEUES, max_size=4),
        exchanges=st.lists(_EXCHANGES, max_size=4),
        bindings=st.lists(_BINDINGS, max_size=6),
        policies=st.lists(_POLICIES, max_size=3),
    )
