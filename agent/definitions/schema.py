"""The whole configuration as one model, and its JSON Schema for editors. It is read entry by entry
(`sources/decode.py`). And the schema of the migration file.

`python -m agent.definitions.schema > config/agent.schema.json` updates it, and
`python -m agent.definitions.schema migration > config/migration.schema.json` the other.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from agent.definitions.models.clusters import DownstreamModel, SetMemberModel, UpstreamModel
from agent.definitions.models.downstream_objects import BindingModel, ExchangeModel, PolicyModel
from agent.definitions.models.migration import MigrationModel
from agent.definitions.models.settings import AgentModel, SourcesModel
from agent.definitions.models.shovel import ShovelModel
from agent.definitions.models.standby import StandbyModel
from agent.definitions.models.validation import StrictModel
from agent.definitions.models.values import MAY_BE_EMPTY, Name, key


class SectionsModel(StrictModel):
    """The definitions of one vhost."""

    noun = "a vhost"

    upstreams: Annotated[dict[Name, UpstreamModel], MAY_BE_EMPTY] = key("Remote clusters, by name.")
    upstream_sets: Annotated[dict[Name, list[SetMemberModel]], MAY_BE_EMPTY] = key(
        "Lists of upstreams, by name; the set `all` is always every upstream of the vhost.",
        json_schema_extra={"propertyNames": {"not": {"const": "all"}}},
    )
    policies: Annotated[dict[Name, PolicyModel], MAY_BE_EMPTY] = key(
        "Which exchanges and queues are federated, by name."
    )
    exchanges: Annotated[dict[Name, ExchangeModel], MAY_BE_EMPTY] = key(
        "Exchanges that the agent declares at start, by name.",
        json_schema_extra={"propertyNames": {"not": {"pattern": r"^amq\."}}},
    )
    bindings: Annotated[dict[Name, list[BindingModel]], MAY_BE_EMPTY] = key(
        "Bindings to create upstream, by exchange, if no HTTP API can be read."
    )
    shovels: Annotated[dict[Name, ShovelModel], MAY_BE_EMPTY] = key("Shovels, by name.")


class DocumentModel(SectionsModel):
    """Configuration of federation-agent."""

    noun = "the file"
    model_config = ConfigDict(json_schema_extra={"patternProperties": {"^x-": {}}})  # they hold YAML anchors

    agent: Annotated[AgentModel, MAY_BE_EMPTY] = key("The agent itself.")
    downstream: DownstreamModel = Field(description="The cluster that the agent runs beside; mandatory.")
    definitions: Annotated[SourcesModel, MAY_BE_EMPTY] = key("Sources of definitions besides this file.")
    standby: StandbyModel = key("Keeps the downstream in step with another cluster.")
    vhosts: Annotated[dict[Name, Annotated[SectionsModel, MAY_BE_EMPTY]], MAY_BE_EMPTY] = key(
        "The same six sections for other vhosts; at the top level they are for `/`."
    )


_INTERPOLATED = {
    "description": "Text with ${env:NAME} or ${file:PATH} in it.",
    "type": "string",
    "pattern": r"\$\{(env|file):[^}]+\}",
}
_REFERENCE = {"$ref": "#/$defs/Interpolated"}
_NARROWING = ("enum", "const", "pattern", "minLength", "maxLength")


def build_schema(model: type[StrictModel] = DocumentModel, title: str = "configuration") -> dict[str, Any]:
    schema = _tidy(model.model_json_schema(by_alias=True))
    schema["$defs"]["Interpolated"] = _INTERPOLATED
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"federation-agent {title}",
        **schema,
    }


def schema_text() -> str:
    return _written(build_schema())


def migration_schema_text() -> str:
    return _written(build_schema(MigrationModel, "migration"))


def _written(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _tidy(schema: Any) -> Any:
    """Drops redundant entries, and permits `${…}` in any text."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    tidy = {
        name: {key: _tidy(item) for key, item in value.items()} if name in ("properties", "$defs") else _tidy(value)
        for name, value in schema.items()
        if not (name == "title" or (name == "default" and value is None) or name == "propertyNames")
    }
    if "propertyNames" in schema:
        tidy["propertyNames"] = schema["propertyNames"]
    return _or_interpolated(tidy)


def _or_interpolated(schema: dict[str, Any]) -> dict[str, Any]:
    """An enumerated text may also be an interpolated one."""
    narrowing = {key: schema[key] for key in _NARROWING if key in schema}
    if not narrowing:
        return schema
    rest = {key: value for key, value in schema.items() if key not in narrowing and key != "type"}
    return {**rest, "anyOf": [{"type": "string", **narrowing}, _REFERENCE]}


if __name__ == "__main__":
    sys.stdout.write(migration_schema_text() if sys.argv[1:] == ["migration"] else schema_text())
