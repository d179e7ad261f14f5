"""Plain data with the shape of the configuration's sections → the core's definitions; every entry separately, so that
one error hides no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from pydantic_core import PydanticCustomError

from agent.core import model
from agent.core.model import DEFAULT_VHOST
from agent.core.rules.resolve import ALL
from agent.core.text import did_you_mean
from agent.definitions.document.findings import Spot, quoted
from agent.definitions.models.clusters import SetMemberModel, UpstreamModel
from agent.definitions.models.downstream_objects import BindingModel, ExchangeModel, PolicyModel
from agent.definitions.models.shovel import LACKS_DESTINATION, ShovelModel, lacks_destination
from agent.definitions.models.validation import check
from agent.definitions.models.values import MAX_SHORT_TEXT, check_regex, kind_of

SECTIONS: Final = ("upstreams", "upstream-sets", "policies", "exchanges", "bindings", "shovels")
VHOSTS: Final = "vhosts"

Decoded = TypeVar("Decoded")


@dataclass(frozen=True, slots=True)
class RawVhost:
    """The sections of one vhost as written, and their location."""

    name: str
    raw: Mapping[str, Any]
    spot: Spot


def mapping(value: object) -> Mapping[str, Any]:
    """The value, or an empty mapping where it is none: that is reported elsewhere."""
    return value if isinstance(value, dict) else {}


def find_vhosts(raw: Mapping[str, Any], spot: Spot) -> list[RawVhost]:
    """The vhost "/" at the top level, and those of `vhosts`; unknown sections are reported."""
    found = [RawVhost(DEFAULT_VHOST, raw, spot)] if any(raw.get(section) is not None for section in SECTIONS) else []
    for name, inner, place in _entries(raw.get(VHOSTS), spot.at(VHOSTS), "vhosts"):
        if not isinstance(inner, dict):
            if inner is not None:
                place.error(f"expected a mapping, got {kind_of(inner)}")
            continue
        for key in inner:
            if key not in SECTIONS:
                hint = did_you_mean(key, SECTIONS)
                place.error(f"unknown key {quoted(key)} in a vhost{hint}", key, key=True)
        if name == DEFAULT_VHOST:
            _refuse_twice(raw, inner, place)
        found.append(RawVhost(name, inner, place))
    return found


def _refuse_twice(raw: Mapping[str, Any], inner: Mapping[str, Any], place: Spot) -> None:
    for section in SECTIONS:
        for name in sorted(mapping(raw.get(section)).keys() & mapping(inner.get(section)).keys()):
            message = f"{quoted(name)} is already in '{section}' above, which is vhost '/' too"
            place.error(message, section, name, key=True)


def decode_vhosts(vhosts: list[RawVhost]) -> model.Definitions:
    decoded: dict[str, model.VhostDefinitions] = {}
    for vhost in vhosts:
        found = decode_vhost(vhost.raw, vhost.spot)
        decoded[vhost.name] = _joined(decoded[vhost.name], found) if vhost.name in decoded else found
    return model.Definitions(decoded)


def decode_vhost(raw: Mapping[str, Any], spot: Spot) -> model.VhostDefinitions:
    def section(name: str, decode: Callable[[str, object, Spot], Decoded | None]) -> dict[str, Decoded]:
        decoded = {key: decode(key, value, place) for key, value, place in _entries(raw.get(name), spot.at(name), name)}
        return {key: value for key, value in decoded.items() if value is not None}

    return model.VhostDefinitions(
        upstreams=section("upstreams", decode_upstream),
        upstream_sets=section("upstream-sets", decode_set),
        policies=section("policies", decode_policy),
        exchanges=section("exchanges", decode_exchange),
        bindings=section("bindings", decode_bindings),
        shovels=section("shovels", decode_shovel),
    )


def _joined(one: model.VhostDefinitions, other: model.VhostDefinitions) -> model.VhostDefinitions:
    sections = [section.name for section in fields(model.VhostDefinitions)]
    return model.VhostDefinitions(**{name: {**getattr(one, name), **getattr(other, name)} for name in sections})


def _entries(raw: object, spot: Spot, section: str) -> list[tuple[str, Any, Spot]]:
    """The named entries of a section; a section may be empty, with its entries commented out."""
    if raw is None:
        return []
    if not isinstance(raw, dict):
        spot.error(f"{section}: expected a mapping of names, got {kind_of(raw)}")
        return []
    return [(name, value, spot.at(name)) for name, value in raw.items() if check_name(name, spot.at(name))]


def check_name(name: str, spot: Spot) -> bool:
    if not name:
        spot.error("a name must not be empty", key=True)
    elif len(name.encode("utf-8", "surrogatepass")) > MAX_SHORT_TEXT:
        spot.error(f"a name must not be longer than {MAX_SHORT_TEXT} bytes", key=True)
    else:
        return True
    return False


def decode_upstream(name: str, raw: object, spot: Spot) -> model.Upstream | None:
    checked = check(UpstreamModel, raw, spot)
    if checked is None:
        return None
    checked.warnings(spot)
    return checked.to_core(name, spot.place)


def decode_set(name: str, raw: object, spot: Spot) -> model.UpstreamSet | None:
    if name == ALL:
        spot.error("the set 'all' always means every upstream; choose another name", key=True)
        return None
    if not isinstance(raw, list):
        spot.error(f"expected a list of members such as {{upstream: NAME}}, got {kind_of(raw)}")
        return None
    if not raw:
        spot.not_run("the set is empty, so it defines no link")
    members = [check(SetMemberModel, member, spot.at(number)) for number, member in enumerate(raw)]
    for number, member in enumerate(members):
        if member is not None:
            member.warnings(spot.at(number))
    whole = [member.to_core() for member in members if member is not None]
    return model.UpstreamSet(name, tuple(whole), spot.place) if len(whole) == len(raw) else None


_PATTERNS: Final = ("pattern", model.Choice.PATTERN.value)
MOST_REGEX_BYTES: Final = 128 * 1024  # compiling more takes seconds


def decode_policy(name: str, raw: object, spot: Spot) -> model.Policy | None:
    policy = mapping(raw)
    definition = mapping(policy.get("definition"))
    if has_too_many_patterns(spot, policy.get("pattern"), definition.get(model.Choice.PATTERN)):
        spot.error(f"pattern: more than {MOST_REGEX_BYTES // 1024} KiB of regular expressions in all", "pattern")
        return None
    if spot.native and not (
        has_readable_patterns(policy, spot) and has_readable_patterns(definition, spot.at("definition"))
    ):
        return None
    checked = check(PolicyModel, raw, spot)
    return None if checked is None else checked.to_core(name, spot.place)


def has_too_many_patterns(spot: Spot, *more: object) -> bool:
    """True if the regular expressions of a document, with these, take too long to compile."""
    spot.findings.regex_bytes += sum(len(regex) for regex in more if isinstance(regex, str))
    return spot.findings.regex_bytes > MOST_REGEX_BYTES


def has_readable_patterns(raw: Mapping[str, Any], spot: Spot) -> bool:
    """Brokers accept regular expressions that the agent can't read; one such policy mustn't stop all the others."""
    for name in _PATTERNS:
        text = raw.get(name)
        try:
            check_regex(text if isinstance(text, str) else "")
        except PydanticCustomError as error:
            spot.not_run(f"{name}: {error}; the policy defines no link", name)
            return False
    return True


def decode_exchange(name: str, raw: object, spot: Spot) -> model.DeclaredExchange | None:
    if name.startswith("amq."):
        spot.error("names that begin with amq. are the broker's; a policy federates such an exchange", key=True)
    checked = check(ExchangeModel, raw, spot)
    return None if checked is None else checked.to_core(name, spot.place)


def decode_bindings(_name: str, raw: object, spot: Spot) -> tuple[model.Binding, ...] | None:
    if not isinstance(raw, list):
        spot.error(f"expected a list of bindings such as {{key: TEXT}}, got {kind_of(raw)}")
        return None
    models = [check(BindingModel, binding, spot.at(number)) for number, binding in enumerate(raw)]
    return tuple(checked.to_core() for checked in models if checked is not None)


def decode_shovel(name: str, raw: object, spot: Spot) -> model.Shovel | None:
    if isinstance(raw, dict) and spot.native and lacks_destination(raw):  # brokers take it, and their plugin fails
        spot.not_run(LACKS_DESTINATION)
        return None
    checked = check(ShovelModel, raw, spot)
    if checked is None:
        return None
    checked.warnings(spot)
    return checked.to_core(name, spot.place)
