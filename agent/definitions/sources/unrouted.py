"""`forward-unrouted` for exchanges of a type without a binding that matches all messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent.core.model import LinkOverrides, VhostDefinitions
from agent.core.rules.bindings import MATCH_ALL_BINDINGS
from agent.core.rules.resolve import ALL
from agent.definitions.document.findings import Spot, quoted
from agent.definitions.models.local import sets_of
from agent.definitions.sources.decode import RawVhost
from agent.definitions.sources.references import OtherSources

_KEY = "forward-unrouted"


def check_unrouted(vhosts: list[RawVhost], others: OtherSources) -> None:
    """One error for each exchange that doesn't support the setting of an upstream of its set."""
    written: dict[str, list[Mapping[str, Any]]] = {}
    for vhost in vhosts:
        written.setdefault(vhost.name, []).append(vhost.raw)
    sets = {name: _Sets(raw, others.definitions.of(name)) for name, raw in written.items()}
    for vhost in vhosts:
        for name, exchange in _mapping(vhost.raw.get("exchanges")).items():
            _check(name, _mapping(exchange), vhost.spot.at("exchanges", name), sets=sets[vhost.name])


def _check(name: str, exchange: Mapping[str, Any], spot: Spot, *, sets: _Sets) -> None:
    type_ = exchange.get("type")
    if not isinstance(type_, str) or not (type_ == "direct" or type_.startswith("x-")):
        return
    for path, named in sets_of(exchange)[:1]:
        upstream = sets.forwarding(named) if isinstance(named, str) else None
        if upstream is not None:
            spot.error(
                f"upstream {quoted(upstream)} has {_KEY}, which exchange {quoted(name)} of type {quoted(type_)} "
                "doesn't support: it has no binding that matches all messages; drop the key or use one of "
                f"{', '.join(MATCH_ALL_BINDINGS)}",
                *path,
            )


class _Sets:
    """The sets of one vhost, as written here and as other sources define them; each is searched once."""

    def __init__(self, raw: list[Mapping[str, Any]], others: VhostDefinitions) -> None:
        self._upstreams: dict[str, Mapping[str, Any]] = {
            name: _as_written(upstream.settings) for name, upstream in others.upstreams.items()
        }
        self._sets: dict[str, Iterable[Mapping[str, Any]]] = {
            name: [{"upstream": member.upstream, **_as_written(member.settings)} for member in found.members]
            for name, found in others.upstream_sets.items()
        }
        for vhost in raw:
            self._upstreams |= {name: _mapping(upstream) for name, upstream in _mapping(vhost.get("upstreams")).items()}
            self._sets |= {name: _members(found) for name, found in _mapping(vhost.get("upstream-sets")).items()}
        self._sets[ALL] = [{"upstream": name} for name in self._upstreams]
        self._found: dict[str, str | None] = {}

    def forwarding(self, name: str) -> str | None:
        """The first upstream of a set with unrouted messages."""
        if name not in self._found:
            self._found[name] = next(self._forwarding(name), None)
        return self._found[name]

    def _forwarding(self, name: str) -> Iterator[str]:
        seen: set[tuple[str, object]] = set()
        for member in self._sets.get(name, ()):
            upstream = member.get("upstream")
            if not isinstance(upstream, str) or upstream not in self._upstreams:
                continue
            merged = {**self._upstreams[upstream], **member}
            one = (upstream, str(merged.get("exchange")))
            if one not in seen and merged.get(_KEY) is True:
                yield upstream
            seen.add(one)  # of several with the same upstream name only the first counts


def _as_written(settings: LinkOverrides) -> Mapping[str, Any]:
    """The keys that matter here."""
    keys = {_KEY: settings.forward_unrouted, "exchange": settings.exchange}
    return {key: value for key, value in keys.items() if value is not None}


def _members(raw: object) -> list[Mapping[str, Any]]:
    return [_mapping(member) for member in raw] if isinstance(raw, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
