"""Checks between entries of a configuration: that the names they use are defined, and that exchanges support the
settings of their upstreams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from time import process_time
from typing import TYPE_CHECKING, Any

from agent.core.model import AckMode, Choice, Definitions, LinkSettings, SetMember, Upstream, VhostDefinitions
from agent.core.rules.hops import MATCH_ALL_BINDINGS
from agent.core.rules.patterns import TimeBudget, TimedPattern
from agent.core.rules.policies import without_effect
from agent.core.rules.resolve import ALL
from agent.core.settings import DownstreamSettings
from agent.core.text import did_you_mean, in_another_vhost, listed
from agent.definitions.document.findings import Spot, one_line, quoted
from agent.definitions.models.downstream_objects import sets_of
from agent.definitions.sources.decode import RawVhost, mapping

if TYPE_CHECKING:
    from agent.core.standby.settings import StandbySettings

_KEY = "forward-unrouted"


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
        return did_you_mean(name, sorted(known)) if self._left > 0 else ""

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
    """Warns of patterns that match no upstream. Where all sources are known, resolving them shows that."""
    budget = TimeBudget(process_time).of_vhost()
    for name, policy in mapping(vhost.raw.get("policies")).items():
        pattern = mapping(mapping(policy).get("definition")).get(Choice.PATTERN)
        spot = vhost.spot.at("policies", name, "definition", Choice.PATTERN)
        if not isinstance(pattern, str) or spot.is_unresolved() or spot.findings.full:
            continue
        timed = TimedPattern(pattern, budget)
        if all(timed.matches(each) is False for each in sorted(upstreams)):
            spot.warn_undefined("matches no upstream of this file; another source has to define one that it matches")


def _names(vhosts: list[RawVhost], section: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for vhost in vhosts:
        found.setdefault(vhost.name, set()).update(mapping(vhost.raw.get(section)))
    return found


def _references(vhost: RawVhost) -> Iterator[tuple[str, str, Spot]]:
    """The kind, name and location of each reference."""
    for name, members in mapping(vhost.raw.get("upstream-sets")).items():
        for number, member in enumerate(members if isinstance(members, list) else ()):
            yield from _named("upstream", member, "upstream", vhost.spot.at("upstream-sets", name, number))
    for name, policy in mapping(vhost.raw.get("policies")).items():
        definition = mapping(policy).get("definition")
        spot = vhost.spot.at("policies", name, "definition")
        yield from _named("upstream", definition, "federation-upstream", spot)
        yield from _named("upstream set", definition, "federation-upstream-set", spot)
    for name, exchange in mapping(vhost.raw.get("exchanges")).items():
        for path, value in sets_of(mapping(exchange)):
            if isinstance(value, str) and value:
                yield "upstream set", value, vhost.spot.at("exchanges", name, *path)


def _named(what: str, raw: object, key: str, spot: Spot) -> Iterator[tuple[str, str, Spot]]:
    value = mapping(raw).get(key)
    if isinstance(value, str) and value:
        yield what, value, spot.at(key)


def check_standby(
    standby: StandbySettings, downstream: DownstreamSettings, definitions: Definitions, spot: Spot
) -> None:
    """Reports an upstream of the source that isn't defined in this file and its exports, or can't be used for all of
    it: over HTTP each vhost has its own name. And what else federates in its vhosts."""
    if not downstream.management:
        spot.error("a standby needs downstream.management, the address of its HTTP API", key=True)
    losing: set[str] = set()
    for vhost in standby.vhosts:
        others = definitions.of(vhost)
        unused = [f"upstream {name!r}" for name in others.upstreams if name != standby.of]
        unused += without_effect(others, (), ())
        if unused:
            spot.error(
                f"vhost {quoted(vhost)} is federated by the standby alone; move to another vhost, or to another agent "
                f"for after a promotion: {one_line(listed(unused))}",
                "vhosts",
                vhost,
                key=True,
            )
        upstream = standby.upstream(vhost, definitions)
        if upstream is None:
            hint = did_you_mean(standby.of, {**definitions.of("/").upstreams, **definitions.of(vhost).upstreams})
            spot.error(f"upstream {quoted(standby.of)} isn't defined in vhost {quoted(vhost)} or '/'{hint}", "of")
            return
        if not upstream.management:
            spot.error(f"upstream {quoted(standby.of)} needs 'management', the address of its HTTP API", "of")
            return
        if upstream.management != standby.management(definitions):
            spot.error(f"the upstreams {quoted(standby.of)} of its vhosts need the same 'management'", "of")
            return
        if any(uri.vhost(vhost) != vhost for uri in upstream.uris):
            spot.error(
                f"upstream {quoted(standby.of)} leads to another vhost than {quoted(vhost)}: write its URI without a "
                "vhost, or another upstream of this name in that vhost",
                "of",
            )
            return
        losing |= _may_lose(upstream.settings)
    if losing:
        spot.warn(
            f"upstream {quoted(standby.of)} has {listed(sorted(losing))}: so its links may lose copies, "
            "and the standby doesn't know which; leave that out",
            "of",
        )


def _may_lose(settings: LinkSettings) -> set[str]:
    may_lose = {
        "ack-mode": settings.ack_mode is not AckMode.ON_CONFIRM,
        "expires": settings.expires is not None,
        "message-ttl": settings.message_ttl is not None,
    }
    return {key for key, does in may_lose.items() if does}


def check_unrouted(vhosts: list[RawVhost], others: OtherSources) -> None:
    """Reports each exchange that doesn't support `forward-unrouted`, which an upstream of its set has."""
    written: dict[str, list[Mapping[str, Any]]] = {}
    for vhost in vhosts:
        written.setdefault(vhost.name, []).append(vhost.raw)
    sets = {name: _forwarding_sets(raw, others.definitions.of(name)) for name, raw in written.items()}
    for vhost in vhosts:
        for name, exchange in mapping(vhost.raw.get("exchanges")).items():
            _check_exchange(name, mapping(exchange), vhost.spot.at("exchanges", name), forwarding=sets[vhost.name])


def _check_exchange(
    name: str, exchange: Mapping[str, Any], spot: Spot, *, forwarding: Callable[[str], str | None]
) -> None:
    type_ = exchange.get("type")
    if not isinstance(type_, str) or not (type_ == "direct" or type_.startswith("x-")):
        return
    for path, named in sets_of(exchange)[:1]:
        upstream = forwarding(named) if isinstance(named, str) else None
        if upstream is not None:
            spot.error(
                f"upstream {quoted(upstream)} has {_KEY}, which exchange {quoted(name)} of type {quoted(type_)} "
                "doesn't support: it has no binding that matches all messages; drop the key or use one of "
                f"{', '.join(MATCH_ALL_BINDINGS)}",
                *path,
            )


def _forwarding_sets(raw: list[Mapping[str, Any]], others: VhostDefinitions) -> Callable[[str], str | None]:
    """The first upstream that has the key, of each set of one vhost, as written here and as other sources define it;
    each set is searched once."""
    upstreams = {name: _as_written(upstream) for name, upstream in others.upstreams.items()}
    sets = {name: [_as_written(member) for member in found.members] for name, found in others.upstream_sets.items()}
    for vhost in raw:
        upstreams |= {name: mapping(upstream) for name, upstream in mapping(vhost.get("upstreams")).items()}
        sets |= {
            name: [mapping(member) for member in found] if isinstance(found, list) else []
            for name, found in mapping(vhost.get("upstream-sets")).items()
        }
    sets[ALL] = [{"upstream": name} for name in upstreams]

    @cache
    def forwarding(name: str) -> str | None:
        seen: set[tuple[str, object]] = set()
        for member in sets.get(name, ()):
            upstream = member.get("upstream")
            if not isinstance(upstream, str) or upstream not in upstreams:
                continue
            merged = {**upstreams[upstream], **member}
            one = (upstream, str(merged.get("exchange")))
            if one not in seen and merged.get(_KEY) is True:
                return upstream
            seen.add(one)  # of several with the same upstream name only the first counts
        return None

    return forwarding


def _as_written(entry: Upstream | SetMember) -> Mapping[str, Any]:
    """The keys of an upstream or a member that these checks read."""
    keys = {_KEY: entry.settings.forward_unrouted, "exchange": entry.settings.exchange}
    if isinstance(entry, Upstream):
        return keys
    return {"upstream": entry.upstream, **{key: keys[key] for key in keys if key.replace("-", "_") in entry.written}}
