"""Responses of a broker's HTTP API → the core's definitions; errors name the object.

Texts are taken literally: a broker must not make the agent read its environment or files.

Why: docs/decisions/0025-problems-stay-in-a-vhost.md
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

from pydantic_core import PydanticCustomError

from agent.core.fields import UNREAD, UnusableError, check_json
from agent.core.model import ApplyTo, Choice, Definitions, Policy, VhostDefinitions
from agent.core.rules.resolve import finish
from agent.core.text import did_you_mean
from agent.definitions.document.findings import DocumentFindings, Path, Spot, in_order, quoted, raise_errors
from agent.definitions.models.downstream_objects import FEDERATION_KEYS, PolicyDefinitionModel
from agent.definitions.models.validation import check
from agent.definitions.models.values import check_regex, kind_of
from agent.definitions.sources.decode import (
    MOST_REGEX_BYTES,
    SECTIONS,
    VHOSTS,
    decode_policy,
    decode_set,
    decode_shovel,
    decode_upstream,
    decode_vhosts,
    find_vhosts,
    has_readable_patterns,
    has_too_many_patterns,
    mapping,
)
from agent.definitions.sources.keeper import SourceReading
from agent.errors import ConfigurationError, Place, Problem

GLOBAL_PARAMETER: Final = "federation-agent"
_GLOBAL: Final = f"global parameter '{GLOBAL_PARAMETER}'"
_COMPONENTS: Final[Mapping[str, tuple[str, Callable[[str, object, Spot], Any]]]] = {
    "federation-upstream": ("upstreams", decode_upstream),
    "federation-upstream-set": ("upstream_sets", decode_set),
    "shovel": ("shovels", decode_shovel),
}

MAX_OF_A_VHOST: Final = 10_000  # objects that are each checked by themselves, which takes its time
Steps: TypeAlias = Generator[None, None, SourceReading]
Items: TypeAlias = Iterable[Mapping[str, Any]]
SpotOf: TypeAlias = Callable[[int, str], Spot]
"""Returns the location of an object's value, by its number in the list and its description."""

Decoded = TypeVar("Decoded")


def reading_parameters(
    broker: str, parameters: Items, before: SourceReading, unread: Mapping[str, Problem] | None = None
) -> Steps:
    """In short steps. A vhost with errors, or one that is `unread`, keeps its previous definitions."""
    ours = (each for each in parameters if each.get("component") in _COMPONENTS)
    what = "parameters of federation and shovels"
    decoded, refused, warnings = yield from _decoding_by_vhost(broker, ours, unread, what=what, decode=_decode_steps)
    vhosts = {vhost: found for of_vhost in decoded.values() for vhost, found in of_vhost.items()}
    vhosts |= {vhost: before.definitions.of(vhost) for vhost in refused}
    return SourceReading(Definitions(vhosts), warnings=warnings, refused=_all(refused), is_by_vhost=True)


def reading_policies(
    broker: str, policies: Items, before: SourceReading, unread: Mapping[str, Problem] | None = None
) -> Steps:
    """As `reading_parameters`."""
    decoded, refused, warnings = yield from _decoding_by_vhost(
        broker, policies, unread, what="policies", decode=_decode_policies
    )
    verdicts = {vhost: found for vhost, found in decoded.items() if found}
    verdicts |= {vhost: before.verdicts.get(vhost, {}) for vhost in refused}
    return SourceReading(verdicts=verdicts, warnings=warnings, refused=_all(refused), is_by_vhost=True)


def _decoding_by_vhost(
    broker: str,
    items: Items,
    unread: Mapping[str, Problem] | None,
    *,
    what: str,
    decode: Callable[[Items, SpotOf], Generator[None, None, Mapping[str, Decoded]]],
) -> Generator[None, None, tuple[dict[str, Mapping[str, Decoded]], dict[str, Sequence[Problem]], tuple[Problem, ...]]]:
    """The decoded items of each vhost; the problems of the vhosts with errors; and warnings."""
    decoded: dict[str, Mapping[str, Decoded]] = {}
    refused: dict[str, Sequence[Problem]] = {vhost: (why,) for vhost, why in (unread or {}).items()}
    warnings: list[Problem] = []
    for vhost, of_vhost in _by_vhost(items).items():
        problems: list[Problem] = []
        if len(of_vhost) > MAX_OF_A_VHOST:
            place = Place(f"{broker} vhost {quoted(vhost)}")
            refused[vhost] = (Problem(place, f"more than {MAX_OF_A_VHOST} {what}; remove unused ones"),)
            continue
        try:
            found = yield from decode(of_vhost, _spots(broker, problems))
            raise_errors(problems)
        except ConfigurationError as error:
            refused[vhost] = error.problems
        else:
            decoded[vhost] = found
            warnings += in_order(problems)
    return decoded, refused, tuple(warnings)


def _all(refused: Mapping[str, Sequence[Problem]]) -> tuple[Problem, ...]:
    return tuple(problem for of_vhost in refused.values() for problem in of_vhost)


def _by_vhost(items: Items) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for item in items:
        vhost = item.get("vhost")
        if isinstance(vhost, str):
            found.setdefault(vhost, []).append(item)
    return found


def read_global(broker: str, value: object) -> SourceReading:
    problems: list[Problem] = []
    definitions = decode_global(value, replace(_spots(broker, problems)(0, _GLOBAL), native=False))
    raise_errors(problems)
    return SourceReading(definitions, warnings=tuple(in_order(problems)))


def _spots(broker: str, problems: list[Problem]) -> SpotOf:
    """Paths begin with the description of an object."""

    def place(path: Path, _key: bool) -> Place:
        return Place(f"{broker} {path[0]}" + "".join(f", {quoted(part)}" for part in path[1:] if isinstance(part, str)))

    root = Spot(DocumentFindings(place, problems=problems), native=True)
    return lambda _number, description: root.at(description)


def decode_parameters(items: Items, spot: SpotOf, *, default_vhost: str | None = None) -> Definitions:
    """Runtime parameters of the components of federation and shovels; others are ignored."""
    return Definitions(finish(_decode_steps(items, spot, default_vhost)))


def _decode_steps(
    items: Items, spot: SpotOf, default_vhost: str | None = None
) -> Generator[None, None, Mapping[str, VhostDefinitions]]:
    vhosts: dict[str, dict[str, dict[str, Any]]] = {}
    for number, parameter in enumerate(items):
        component, name = parameter.get("component"), parameter.get("name")
        vhost = parameter.get("vhost", default_vhost)
        known = _COMPONENTS.get(component) if isinstance(component, str) else None
        if known is None or not isinstance(vhost, str) or not isinstance(name, str):
            continue
        section, decode = known
        place = spot(number, _describe(str(component), name, vhost))
        decoded = None if _is_unread(parameter, place) else decode(name, parameter.get("value"), place)
        if decoded is not None:
            vhosts.setdefault(vhost, {}).setdefault(section, {})[name] = decoded
        yield
    return {vhost: VhostDefinitions(**sections) for vhost, sections in vhosts.items()}


def _is_unread(raw: Mapping[str, Any], spot: Spot) -> bool:
    """Reports an object that was too large to be read, or whose value is; returns True if so."""
    reason = raw.get(UNREAD)
    if reason is None:
        try:
            check_json([raw.get("value"), raw.get("definition")])
        except UnusableError as error:
            reason = str(error)
    if reason is not None:
        spot.error(f"it {reason}")
    return reason is not None


def _describe(what: str, name: str, vhost: str) -> str:
    return f"{what} {quoted(name)} in vhost {quoted(vhost)}"


def decode_global(value: object, spot: Spot) -> Definitions:
    """The sections of the configuration, as a global parameter's value."""
    if value is None:
        return Definitions()
    if not isinstance(value, dict):
        spot.error(f"expected a mapping of sections, got {kind_of(value)}")
        return Definitions()
    for key in value:
        if key not in (*SECTIONS, VHOSTS):
            spot.error(f"unknown key {quoted(key)}{did_you_mean(key, (*SECTIONS, VHOSTS))}")
    return decode_vhosts(find_vhosts(value, spot))


def _decode_policies(items: Items, spot: SpotOf) -> Generator[None, None, Mapping[str, Policy]]:
    found: dict[str, Policy] = {}
    for number, policy in enumerate(items):
        name = policy.get("name")
        if isinstance(name, str):
            place = spot(number, _describe("policy", name, policy["vhost"]))
            decoded = None if _is_unread(policy, place) else _verdict_policy(name, policy, place)
            if decoded is not None:
                found[name] = decoded
        yield
    return found


def _verdict_policy(name: str, raw: Mapping[str, Any], spot: Spot) -> Policy | None:
    """Checks only the definition: the broker decides where the policy applies, with its own regular expressions."""
    definition = federating_part(raw)
    if not definition:
        return None
    if has_too_many_patterns(spot, definition.get(Choice.PATTERN)):
        spot.error(f"more than {MOST_REGEX_BYTES // 1024} KiB of regular expressions in the policies of one vhost")
        return None
    if not has_readable_patterns(definition, spot.at("definition")):
        return None
    model = check(PolicyDefinitionModel, definition, spot)
    if model is None:
        return None
    pattern, apply_to, priority = raw.get("pattern"), raw.get("apply-to"), raw.get("priority")
    return Policy(
        name=name,
        pattern=pattern if isinstance(pattern, str) else "",
        apply_to=ApplyTo(apply_to) if isinstance(apply_to, str) and apply_to in set(ApplyTo) else ApplyTo.ALL,
        priority=priority if isinstance(priority, int | float) else 0,
        federation=model.to_core(),
        place=spot.place,
    )


def decode_native_policy(name: str, raw: Mapping[str, Any], spot: Spot) -> Policy | None:
    """A broker's policy that the agent matches itself; keys other than those of federation are ignored."""
    definition = federating_part(raw)
    if not definition or raw.get("apply-to") == ApplyTo.STREAMS:
        return None
    kept = {key: raw[key] for key in ("pattern", "apply-to", "priority") if key in raw}
    return decode_policy(name, kept | {"definition": definition}, spot)


def decode_other_policy(name: str, raw: Mapping[str, Any], spot: Spot) -> Policy | None:
    """A broker's policy that federates nothing, and keeps others of a lower priority from doing so. One that can't be
    read is left out without a word: it is none of the agent's business."""
    pattern, apply_to, priority = raw.get("pattern"), raw.get("apply-to", ApplyTo.ALL), raw.get("priority", 0)
    if federating_part(raw) or not isinstance(pattern, str) or apply_to not in set(ApplyTo) - {ApplyTo.STREAMS}:
        return None
    if isinstance(priority, bool) or not isinstance(priority, int | float):
        return None
    if has_too_many_patterns(spot, pattern):
        return None
    try:
        check_regex(pattern)
    except PydanticCustomError:
        return None
    return Policy(name, pattern, ApplyTo(apply_to), priority, None, spot.place)


def federating_part(raw: Mapping[str, Any]) -> dict[str, Any]:
    definition = mapping(raw.get("definition"))
    return {key: definition[key] for key in FEDERATION_KEYS if key in definition}
