"""Manifests of kinds that Kubernetes doesn't know: each field exists in the definition of its kind, with its type."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

from tests.deploy.prometheus import ROOT

FIELDS: Final = Path(__file__).with_name("custom_resources.yaml")
BUILT_IN: Final = {"v1", "apps/v1", "batch/v1", "policy/v1", "rbac.authorization.k8s.io/v1"}
"""Of Kubernetes itself, whose own schemas `kubernetes_validate` has."""

Step = str | int
Route = tuple[Step, ...]


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted([*ROOT.glob("deploy/**/*.yaml"), *ROOT.glob("deploy/**/*.yml")]):
        for document in yaml.safe_load_all(path.read_text()):
            if isinstance(document, dict) and {"apiVersion", "kind"} <= document.keys():
                yield f"{path.relative_to(ROOT / 'deploy')}:{document['kind']}", document


def schema(fields: Any) -> dict[str, Any]:
    """What `custom_resources.yaml` says, as JSON Schema: what isn't named there is refused."""
    match fields:
        case {"*": values}:
            return {"type": "object", "additionalProperties": schema(values)}
        case dict():
            return {
                "type": "object",
                "properties": {name.removesuffix("!"): schema(value) for name, value in fields.items()},
                "required": [name.removesuffix("!") for name in fields if name.endswith("!")],
                "additionalProperties": False,
            }
        case [value]:
            return {"type": "array", "items": schema(value)}
        case "quantity":
            return {"type": ["integer", "string"]}
        case str() if "|" in fields:
            return {"enum": fields.split("|")}
    return {"type": fields}


def of_kind(one: dict[str, Any]) -> dict[str, Any]:
    named = {"apiVersion!": "string", "kind!": "string", "metadata": {"name": "string"}}
    return schema(named | one["fields"])


SCHEMAS: Final = {(one["apiVersion"], one["kind"]): of_kind(one) for one in yaml.safe_load(FIELDS.read_text())}
CUSTOM: Final = {name: one for name, one in manifests() if one["apiVersion"] not in BUILT_IN}


def errors(manifest: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    found = jsonschema.Draft202012Validator(wanted).iter_errors(manifest)
    return [f"{one.json_path}: {one.message}" for one in found]


def kind_of(manifest: dict[str, Any]) -> dict[str, Any]:
    return SCHEMAS[manifest["apiVersion"], manifest["kind"]]


def routes(value: Any, fields: dict[str, Any], before: Route = ()) -> Iterator[tuple[Route, bool]]:
    """The way to each field, and whether its name is given by its kind."""
    if isinstance(value, dict):
        named = fields.get("properties")
        for name, inner in value.items():
            yield (*before, name), named is not None
            yield from routes(inner, named[name] if named else fields["additionalProperties"], (*before, name))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from routes(inner, fields["items"], (*before, place))


def holder(manifest: dict[str, Any], route: Route) -> Any:
    found: Any = manifest
    for step in route[:-1]:
        found = found[step]
    return found


def test_every_kind_is_known() -> None:
    unknown = {(one["apiVersion"], one["kind"]) for one in CUSTOM.values()} ^ SCHEMAS.keys()
    assert not unknown, f"look its definition up, and add the fields to {FIELDS.name}"


@pytest.mark.parametrize("manifest", CUSTOM.values(), ids=CUSTOM)
def test_each_field_exists_with_its_type(manifest: dict[str, Any]) -> None:
    assert errors(manifest, kind_of(manifest)) == []


@pytest.mark.parametrize("manifest", CUSTOM.values(), ids=CUSTOM)
def test_a_misspelt_field_is_found_wherever_it_is(manifest: dict[str, Any]) -> None:
    wanted = kind_of(manifest)
    tried = [route for route, is_named in routes(manifest, wanted) if is_named]
    assert len(tried) > 5
    for route in tried:
        misspelt = copy.deepcopy(manifest)
        inside = holder(misspelt, route)
        inside[f"{route[-1]}s"] = inside.pop(route[-1])
        assert errors(misspelt, wanted), route


@pytest.mark.parametrize("manifest", CUSTOM.values(), ids=CUSTOM)
def test_a_value_of_another_type_is_found_wherever_it_is(manifest: dict[str, Any]) -> None:
    wanted = kind_of(manifest)
    for route, _ in routes(manifest, wanted):
        wrong = copy.deepcopy(manifest)
        holder(wrong, route)[route[-1]] = 1.5
        assert errors(wrong, wanted), route


def test_what_a_kind_requires_may_not_be_left_out() -> None:
    user = copy.deepcopy(next(one for one in CUSTOM.values() if one["kind"] == "User"))
    del user["spec"]["rabbitmqClusterReference"]
    assert errors(user, kind_of(user)) == ["$.spec: 'rabbitmqClusterReference' is a required property"]
