"""What a broker's HTTP API answers about definitions → the core's, each bad one with the object that holds it.

Texts are taken literally: a broker must not make the agent read its environment or files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from agent.core.model import ApplyTo, Definitions, Policy, VhostDefinitions
from agent.definitions.decode import (
    SECTIONS,
    VHOSTS,
    decode_policy,
    decode_set,
    decode_shovel,
    decode_upstream,
    decode_vhosts,
    find_vhosts,
    has_readable_patterns,
)
from agent.definitions.explain import check
from agent.definitions.findings import Findings, Path, Spot, in_order, quoted, raise_errors, suggest
from agent.definitions.keeper import Told
from agent.definitions.local_models import FEDERATION_KEYS, PolicyDefinitionModel
from agent.definitions.value_types import kind_of
from agent.errors import Place, Problem

GLOBAL_PARAMETER: Final = "federation-agent"
_GLOBAL: Final = f"global parameter '{GLOBAL_PARAMETER}'"
_COMPONENTS: Final[Mapping[str, tuple[str, Callable[[str, object, Spot], Any]]]] = {
    "federation-upstream": ("upstreams", decode_upstream),
    "federation-upstream-set": ("upstream_sets", decode_set),
    "shovel": ("shovels", decode_shovel),
}


def read_parameters(broker: str, parameters: Iterable[Mapping[str, Any]]) -> Told:
    """`broker` is the HTTP API's address; raises ConfigurationError with everything that is wrong, as the others do."""
    problems: list[Problem] = []
    definitions = decode_parameters(parameters, _spots(broker, problems))
    raise_errors(problems)
    return Told(definitions, warnings=tuple(in_order(problems)))


def read_policies(broker: str, policies: Iterable[Mapping[str, Any]]) -> Told:
    problems: list[Problem] = []
    verdicts = _verdict_policies(policies, _spots(broker, problems))
    raise_errors(problems)
    return Told(verdicts=verdicts, warnings=tuple(in_order(problems)))


def read_global(broker: str, value: object) -> Told:
    problems: list[Problem] = []
    definitions = decode_global(value, replace(_spots(broker, problems)(0, _GLOBAL), native=False))
    raise_errors(problems)
    return Told(definitions, warnings=tuple(in_order(problems)))


def _spots(broker: str, problems: list[Problem]) -> SpotOf:
    def spot(_number: int, description: str) -> Spot:
        return Spot(Findings(_place_of(f"{broker} {description}"), problems=problems), native=True)

    return spot


def _place_of(source: str) -> Callable[[Path, bool], Place]:
    def place(path: Path, _key: bool) -> Place:
        return Place(source + "".join(f", {quoted(part)}" for part in path if isinstance(part, str)))

    return place


SpotOf: TypeAlias = Callable[[int, str], Spot]
"""Answers where the value of an object is, by its number in the list and its description."""


def decode_parameters(
    parameters: Iterable[Mapping[str, Any]], spot: SpotOf, *, default_vhost: str | None = None
) -> Definitions:
    """Runtime parameters of the components that concern federation and shovels; others are not looked at."""
    vhosts: dict[str, dict[str, dict[str, Any]]] = {}
    for number, parameter in enumerate(parameters):
        component, name, vhost = (
            parameter.get("component"),
            parameter.get("name"),
            parameter.get("vhost", default_vhost),
        )
        known = _COMPONENTS.get(component) if isinstance(component, str) else None
        if known is None or not isinstance(vhost, str) or not isinstance(name, str):
            continue
        section, decode = known
        decoded = decode(name, parameter.get("value"), spot(number, _describe(str(component), name, vhost)))
        if decoded is not None:
            vhosts.setdefault(vhost, {}).setdefault(section, {})[name] = decoded
    return Definitions({vhost: VhostDefinitions(**sections) for vhost, sections in vhosts.items()})


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
            spot.error(f"unknown key {quoted(key)}{suggest(key, (*SECTIONS, VHOSTS))}")
    return decode_vhosts(find_vhosts(value, spot))


def _verdict_policies(policies: Iterable[Mapping[str, Any]], spot: SpotOf) -> dict[str, dict[str, Policy]]:
    found: dict[str, dict[str, Policy]] = {}
    for number, policy in enumerate(policies):
        vhost, name = policy.get("vhost"), policy.get("name")
        if isinstance(vhost, str) and isinstance(name, str):
            decoded = _verdict_policy(name, policy, spot(number, _describe("policy", name, vhost)))
            if decoded is not None:
                found.setdefault(vhost, {})[name] = decoded
    return found


def _verdict_policy(name: str, raw: Mapping[str, Any], spot: Spot) -> Policy | None:
    """Only what it does is judged: whom it is for the broker decides, by its own regular expressions."""
    definition = federating_part(raw)
    if not definition or not has_readable_patterns(definition, spot.at("definition")):
        return None
    model = check(PolicyDefinitionModel, definition, spot)
    if model is None:
        return None
    pattern, apply_to, priority = raw.get("pattern"), raw.get("apply-to"), raw.get("priority")
    return Policy(
        name=name,
        pattern=pattern if isinstance(pattern, str) else "",
        apply_to=ApplyTo(apply_to) if apply_to in set(ApplyTo) else ApplyTo.ALL,
        priority=priority if isinstance(priority, int | float) else 0,
        federation=model.to_core(),
        place=spot.place,
    )


def decode_native_policy(name: str, raw: Mapping[str, Any], spot: Spot) -> Policy | None:
    """A broker's policy that the agent matches itself; its keys that don't federate are the broker's business."""
    definition = federating_part(raw)
    if not definition or raw.get("apply-to") == ApplyTo.STREAMS:
        return None
    kept = {key: raw[key] for key in ("pattern", "apply-to", "priority") if key in raw}
    return decode_policy(name, kept | {"definition": definition}, spot)


def federating_part(raw: Mapping[str, Any]) -> dict[str, Any]:
    definition = raw.get("definition")
    return (
        {key: definition[key] for key in FEDERATION_KEYS if key in definition} if isinstance(definition, dict) else {}
    )
