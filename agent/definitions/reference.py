"""The configuration's reference, from the models.

`python -m agent.definitions.reference > docs/configuration.md` updates it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from agent.definitions.document import yaml
from agent.definitions.models import clusters, downstream_objects, settings, shovel, standby
from agent.definitions.models.validation import StrictModel
from agent.definitions.schema import DocumentModel, build_schema
from agent.definitions.sources.exports import MAX_BYTES as MAX_EXPORT_BYTES

_INTRO = f"""\
# Configuration

<!-- Written by `python -m agent.definitions.reference`; a test keeps it current. -->

One YAML file, with keys as RabbitMQ spells them. `config/` has commented examples, and `config/agent.schema.json` lets
editors check the file. `federation-agent validate -c FILE` checks a file offline and reports all errors, each as
`FILE:LINE:COLUMN: message`.

```yaml
downstream:
  uri: amqp://guest:guest@127.0.0.1:5672
  management: http://guest:guest@127.0.0.1:15672
upstreams:
  origin: {{uri: "amqp://agent:${{env:ORIGIN_PASSWORD}}@remote-host.local"}}
policies:
  federated: {{pattern: ^federated\\., apply-to: exchanges, definition: {{federation-upstream: origin}}}}
```

## How the file is read

- YAML by the core schema of 1.2: only `true` and `false` are booleans; `yes`, `on` and `1:30` are text. Anchors,
  aliases and `<<` work; tags, several documents in a file, and keys that aren't text don't. A key may occur only once.
- UTF-8, at most {yaml.MAX_BYTES // 1024 // 1024} MiB, {yaml.MAX_DEPTH} levels deep, {yaml.MAX_NODES} keys and values
  (aliases counted as if copied).
- `${{env:NAME}}` and `${{file:PATH}}` can be used in any text value: an environment variable, or a file's contents
  without the final newline (at most 64 KiB; the path is relative to the configuration's directory). Their value is
  text, never a number, and is read again with the file. `$${{` is a literal `${{`. Their values in logins of URIs,
  passwords and tokens are never shown. In a name or an address (of an exchange, queue, host, vhost, or the agent) the
  value is visible in logs, on brokers and in the status: keep secrets out of names. `validate` only warns if one has no
  value on this machine, and if a password or token is written in the file itself ([credentials.md](credentials.md)).
- A section or mapping without a value, for example with all entries commented out, is empty.
- A definition has one source: the same name from two sources (this file, an export, the broker) is an error that names
  both. A document with an error changes nothing: the previous definitions stay in force.
- A reference to an undefined upstream or set is an error. It is only a warning if the file sets both
  `definitions.management: true` and `downstream.management`: then the broker may define it.
- Definitions exports are JSON up to {MAX_EXPORT_BYTES // 1024 // 1024} MiB, or YAML within the limits above. Text in
  them, and in definitions of the broker, is taken literally.

"""

_SECTIONS: tuple[tuple[str, type[StrictModel]], ...] = (
    ("The file", DocumentModel),
    ("`agent`", settings.AgentModel),
    ("`agent.http`", settings.HttpModel),
    ("`agent.http.metrics`", settings.MetricsModel),
    ("`agent.status-export`", settings.StatusExportModel),
    ("`agent.log`", settings.LogModel),
    ("`agent.cleanup-after`", settings.CleanupModel),
    ("`downstream`", clusters.DownstreamModel),
    ("`definitions`", settings.SourcesModel),
    ("`standby`", standby.StandbyModel),
    ("`standby.trim`", standby.TrimModel),
    ("`standby.vhosts.NAME`", standby.StandbyVhostModel),
    ("`upstreams.NAME`", clusters.UpstreamModel),
    ("`downstream.ssl-options`, `upstreams.NAME.ssl-options`", clusters.SslOptionsModel),
    ("`upstream-sets.NAME[]`", clusters.SetMemberModel),
    ("`policies.NAME`", downstream_objects.PolicyModel),
    ("`policies.NAME.definition`", downstream_objects.PolicyDefinitionModel),
    ("`exchanges.NAME`", downstream_objects.ExchangeModel),
    ("`bindings.EXCHANGE[]`", downstream_objects.BindingModel),
    ("`shovels.NAME`", shovel.ShovelModel),
    ("`shovels.NAME.dest-publish-properties`", shovel.PropertiesModel),
)
_NOT_SHOWN = ({"$ref": "#/$defs/Interpolated"}, {"type": "null"})
_LIKE_AN_UPSTREAM = "\nAnd any key of an upstream except those of its address; the set's value wins.\n"


def reference_text() -> str:
    schema = build_schema()
    return _INTRO + "\n".join(_section(title, model, schema) for title, model in _SECTIONS)


def _section(title: str, model: type[StrictModel], schema: dict[str, Any]) -> str:
    described = schema["$defs"].get(model.__name__, schema)
    rows = "\n".join(_rows(model, described["properties"], schema))
    more = _LIKE_AN_UPSTREAM if model is clusters.SetMemberModel else ""
    return f"## {title}\n\n{described['description']}\n\n| key | value | description |\n|---|---|---|\n{rows}\n{more}"


def _rows(model: type[StrictModel], properties: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    own = [found.alias or name for name, found in model.model_fields.items() if name in model.__annotations__]
    inherited = [] if model is clusters.SetMemberModel else [key for key in properties if key not in own]
    for key in (*own, *inherited):
        value = properties[key]
        resolved = {**_resolve(value, schema), **value}
        yield f"| `{key}` | {_type(value, schema)} | {resolved['description']} |"


def _resolve(value: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    reference = value.get("$ref")
    found: dict[str, Any] = schema["$defs"][reference.rpartition("/")[2]] if reference else value
    return found


def _type(value: dict[str, Any], schema: dict[str, Any]) -> str:
    value = _resolve(value, schema)
    if "anyOf" in value:
        kinds = [_type(one, schema) for one in value["anyOf"] if one not in _NOT_SHOWN]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    return _plain_type(value, schema)


def _plain_type(value: dict[str, Any], schema: dict[str, Any]) -> str:
    match value["type"]:
        case "string":
            return "text"
        case "boolean":
            return "`true`, `false`"
        case "integer":
            return "whole number" + _range(value)
        case "number":
            return "number" + _range(value)
        case "array":
            return f"list of {_type(value['items'], schema)}s" if "items" in value else "list"
        case _:
            return "mapping"


def _range(value: dict[str, Any]) -> str:
    low, above = value.get("minimum"), value.get("exclusiveMinimum")
    return f" > {above}" if above is not None else f" ≥ {low}" if low is not None else ""


if __name__ == "__main__":
    sys.stdout.write(reference_text())
