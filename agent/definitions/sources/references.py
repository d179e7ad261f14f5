"""Checks that the names that definitions use are defined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import process_time
from typing import Any

from agent.core.model import Choice, Definitions
from agent.core.rules.patterns import TimeBudget, TimedPattern
from agent.core.rules.resolve import ALL
from agent.core.text.suggest import in_another_vhost
from agent.definitions.document.findings import Spot, quoted, suggest
from agent.definitions.models.local import sets_of
from agent.definitions.sources.decode import RawVhost


@dataclass(frozen=True, slots=True)
class OtherSources:
    """The names that other sources define. An open one may define more than is known here; so may a broker that is
    read, which isn't expected to define what the file names."""

    definitions: Definitions = field(default_factory=Definitions)
    is_open: bool = False
    is_broker_read: bool = False


class _Hints:
    """Suggestions, with a limit on the time for comparing names."""

    def __init__(self) -> None:
        self._left = 5000

    def of(self, name: str, known: set[str]) -> str:
        self._left -= len(known)
        return suggest(name, sorted(known)) if self._left > 0 else ""

    def elsewhere(self, what: str, name: str, defined: Mapping[str, set[str]]) -> str:
        self._left -= len(defined)
        return in_another_vhost(what, name, defined) if self._left > 0 else ""


def check_references(vhosts: list[RawVhost], others: OtherSources) -> None:
    """Checks references, even of entries that have other errors."""
    hints = _Hints()
    upstreams, sets = _names(vhosts, "upstreams"), _names(vhosts, "upstream-sets")
    by_kind = {"upstream": upstreams, "upstream set": sets}
    by_quoted_vhost = {what: {quoted(vhost): found for vhost, found in by.items()} for what, by in by_kind.items()}
    for vhost in vhosts:
        elsewhere = others.definitions.of(vhost.name)
        known = {
            "upstream": {*upstreams[vhost.name], *elsewhere.upstreams},
            "upstream set": {*sets[vhost.name], *elsewhere.upstream_sets, ALL},
        }
        if others.is_open or others.is_broker_read:
            _check_patterns(vhost, known["upstream"])
        for what, name, spot in _references(vhost):
            if name not in known[what] and not spot.findings.full:
                hint = hints.elsewhere(what, name, by_quoted_vhost[what]) or hints.of(name, known[what])
                missing = f"{what} {spot.name(name)} isn't defined in "
                if others.is_open:
                    spot.warn_undefined(f"{missing}this file; another source has to define it{hint}")
                else:
                    spot.error(f"{missing}vhost {quoted(vhost.name)}{hint}")


def _check_patterns(vhost: RawVhost, upstreams: set[str]) -> None:
    """Where all sources are known, resolving them shows which patterns match no upstream."""
    budget = TimeBudget(process_time).of_vhost()
    for name, policy in _mapping(vhost.raw.get("policies")).items():
        pattern = _mapping(_mapping(policy).get("definition")).get(Choice.PATTERN)
        spot = vhost.spot.at("policies", name, "definition", Choice.PATTERN)
        if not isinstance(pattern, str) or spot.is_unresolved() or spot.findings.full:
            continue
        timed = TimedPattern(pattern, budget)
        if all(timed.matches(each) is False for each in sorted(upstreams)):
            spot.warn_undefined("matches no upstream of this file; another source has to define one that it matches")


def _names(vhosts: list[RawVhost], section: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for vhost in vhosts:
        entries = vhost.raw.get(section)
        found.setdefault(vhost.name, set()).update(entries if isinstance(entries, dict) else ())
    return found


def _references(vhost: RawVhost) -> Iterator[tuple[str, str, Spot]]:
    """The kind, name and location of each reference."""
    for name, members in _mapping(vhost.raw.get("upstream-sets")).items():
        for number, member in enumerate(members if isinstance(members, list) else ()):
            yield from _named("upstream", member, "upstream", vhost.spot.at("upstream-sets", name, number))
    for name, policy in _mapping(vhost.raw.get("policies")).items():
        definition = _mapping(policy).get("definition")
        spot = vhost.spot.at("policies", name, "definition")
        yield from _named("upstream", definition, "federation-upstream", spot)
        yield from _named("upstream set", definition, "federation-upstream-set", spot)
    for name, exchange in _mapping(vhost.raw.get("exchanges")).items():
        for path, value in sets_of(_mapping(exchange)):
            if isinstance(value, str) and value:
                yield "upstream set", value, vhost.spot.at("exchanges", name, *path)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _named(what: str, raw: object, key: str, spot: Spot) -> Iterator[tuple[str, str, Spot]]:
    value = _mapping(raw).get(key)
    if isinstance(value, str) and value:
        yield what, value, spot.at(key)
