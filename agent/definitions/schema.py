"""The configuration's JSON Schema, for editors.

`python -m agent.definitions.schema > config/agent.schema.json` updates it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from agent.definitions.models.document import DocumentModel

_INTERPOLATED = {
    "description": "Text with ${env:NAME} or ${file:PATH} in it.",
    "type": "string",
    "pattern": r"\$\{(env|file):[^}]+\}",
}
_REFERENCE = {"$ref": "#/$defs/Interpolated"}
_NARROWING = ("enum", "const", "pattern", "minLength", "maxLength")


def build_schema() -> dict[str, Any]:
    schema = _tidy(DocumentModel.model_json_schema(by_alias=True))
    schema["$defs"]["Interpolated"] = _INTERPOLATED
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "federation-agent configuration",
        **schema,
    }


def schema_text() -> str:
    return json.dumps(build_schema(), indent=2, ensure_ascii=False) + "\n"


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
    sys.stdout.write(schema_text())
