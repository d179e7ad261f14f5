"""What programs and people may build on, one a line, from the code itself: docs/promises.txt.

A line that goes, or changes, breaks somebody's; a new one is promised from then on. docs/upgrade.md says which release
may do what.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final, Literal, get_args, get_origin

import typer

from agent.cli import (
    agent_commands,
    file_commands,
    migrate,
    migration_status,
    move,
    options,
    quarantine,
    remote,
    signals,
    standby,
    status,
)
from agent.cli.main import app
from agent.core.export_event import FIELDS, SCHEMA, AgentStatus, EventType, Reason
from agent.definitions.models.migration import MigrationModel
from agent.definitions.schema import build_schema
from agent.pipeline.options import parser
from agent.pipeline.schema import VERSION
from agent.status import metric_definitions as metrics
from agent.status.http import openapi
from agent.status.metrics import LABELS
from tests.acceptance.command import ROOT
from tests.recorded.data_contract import columns

FILE: Final = ROOT / "docs/promises.txt"
HEAD: Final = "# What a version promises (docs/upgrade.md), one a line. Written by `python -m tests.recorded`.\n"
EXIT_STATUSES: Final = {
    options: (
        "OK",
        "BAD_USE",
        "BAD_CONFIGURATION",
        "CANNOT_START",
        "TROUBLE_WITH_BROKERS",
        "UNKNOWN_LINK",
        "INTERRUPTED",
    ),
    agent_commands: ("DOWNSTREAM_UNREAD", "NOT_ALIVE"),
    file_commands: ("CHANGES",),
    migrate: ("NOT_SAFE",),
    migration_status: ("NOT_SAFE",),
    move: ("SOME_LEFT", "NONE_THERE"),
    quarantine: ("NOT_ALL", "NO_MESSAGE"),
    standby: ("NOT_IN_STEP", "LEFT", "NO_STANDBY"),
    status: ("FINE", "DEGRADED", "DOWN", "UNKNOWN"),
    signals: ("NOT_STOPPED",),
}
VARIABLES: Final = (options.CONFIG_VARIABLE, agent_commands.URL_VARIABLE, remote.TOKEN_VARIABLE)
METHODS: Final = ("get", "post", "delete")
Json = dict[str, Any]


def text() -> str:
    return HEAD + "".join(f"{line}\n" for line in lines())


def lines() -> list[str]:
    """Sorted, so that what changes is seen in a comparison, and nothing else."""
    return sorted({*_commands(), *_exit_statuses(), *_configuration(), *_api(), *_metrics(), *_export(), *_tables()})


def _commands() -> Iterator[str]:
    yield from (f"environment {name}" for name in VARIABLES)
    group: Any = typer.main.get_command(app)
    yield from _options("", group)
    for name, command in group.commands.items():
        if name == "report":
            yield from (f"command report {each}" for each in _of_argparse(parser()))
        else:
            yield from _options(f"{name} ", command)
        for below, deeper in getattr(command, "commands", {}).items():
            yield from _options(f"{name} {below} ", deeper)


def _options(path: str, command: Any) -> Iterator[str]:
    yield f"command {path}".rstrip()
    for each in command.params:
        more = "..." if each.nargs == -1 or getattr(each, "multiple", False) else ""
        names = ", ".join(sorted(each.opts)) if each.param_type_name == "option" else each.name.upper()
        yield f"command {path}{names}{more}{_choices(each)}{' required' if each.required else ''}"
        if isinstance(each.envvar, str):
            yield f"environment {each.envvar}"


def _choices(parameter: Any) -> str:
    annotation = parameter.type_descriptor.annotation
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return f" [{'|'.join(annotation)}]"
    return f" [{'|'.join(get_args(annotation))}]" if get_origin(annotation) is Literal else ""


def _of_argparse(found: argparse.ArgumentParser) -> Iterator[str]:
    for each in found._actions:  # noqa: SLF001 - argparse shows them in no other way
        choices = f" [{'|'.join(each.choices)}]" if each.choices else ""
        yield f"{', '.join(sorted(each.option_strings))}{choices}{' required' if each.required else ''}"


def _exit_statuses() -> Iterator[str]:
    for module, names in EXIT_STATUSES.items():
        for name in names:
            yield f"exit {module.__name__.rpartition('.')[2]} {name}: {getattr(module, name)}"


def _configuration() -> Iterator[str]:
    schema = build_schema()
    places = _shape(schema, "", schema["$defs"])
    yield from (f"configuration {each}" for each in places if not each.startswith("vhosts?.*."))  # as at the top
    migration = build_schema(MigrationModel)
    yield from (f"migration {each}" for each in _shape(migration, "", migration["$defs"]))


def _api() -> Iterator[str]:
    found = openapi.document("")
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            assert method in METHODS
            route = f"api {method.upper()} {path}"
            references = [each["$ref"].rpartition("/")[2] for each in operation["parameters"]]
            for parameter in (found["components"]["parameters"][name] for name in references):
                yield f"{route} parameter {parameter['in']} {parameter['name']}"
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            yield from (f"{route} body {each}" for each in _shape(body, "", {}))
            yield f"{route} answers {', '.join(sorted(operation['responses']))}"
            for code, answer in operation["responses"].items():
                for kind, content in answer.get("content", {}).items():
                    yield from (f"{route} {code} {kind} {each}" for each in _shape(content["schema"], "", {}))
    for name, schema in found["components"]["schemas"].items():
        yield from (f"api {each}" for each in _shape(schema, name, {}))
    summary = json.loads((ROOT / "docs/summary.schema.json").read_text())
    yield from (f"summary.json {each}" for each in _shape(summary, "", summary.get("$defs", {})))


def _metrics() -> Iterator[str]:
    for metric in (metrics.STUCK, metrics.CERTIFICATE, metrics.TOKEN, metrics.INFO, *metrics.AGENT_METRICS):
        yield _metric(metric, metric.labels)
    for metric in metrics.LINK_METRICS:
        yield _metric(metric, (*LABELS, *metric.labels))


def _metric(metric: metrics.Metric, labels: tuple[str, ...]) -> str:
    return f"metric {metric.name} {metric.type} {{{', '.join(labels)}}}"


def _export() -> Iterator[str]:
    yield f"export schema: {SCHEMA}"
    yield from (f"export {name}: {kind}" for name, kind in FIELDS.items())
    for field, values in {"type": EventType, "status": AgentStatus, "reason": Reason}.items():
        yield from (f"export {field} = {value}" for value in values)


def _tables() -> Iterator[str]:
    yield f"table version: {VERSION}"
    for table, found in columns().items():
        yield from (f"table {table}.{name}: {kind}" for name, kind in found.items())


def _shape(schema: Json, path: str, defined: Json) -> Iterator[str]:
    """Each place in a document of that schema, with its type or values. References are followed where they are
    `defined`."""
    name = schema.get("$ref", "").rpartition("/")[2]
    if name == "Interpolated" or schema == {"type": "null"}:
        return
    if name and name not in defined:
        yield f"{path}: {name}"
        return
    if name:
        schema = defined[name] | {key: value for key, value in schema.items() if key == "default"}
    if "default" in schema:
        yield f"{path} default {json.dumps(schema['default'])}"
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _shape(each, path, defined)
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    yield from (f"{path} = {value if isinstance(value, str) else json.dumps(value)}" for value in values)
    yield from _parts(schema, path, defined)


def _parts(schema: Json, path: str, defined: Json) -> Iterator[str]:
    kinds = schema.get("type", [])
    if "enum" not in schema and kinds and "properties" not in schema:
        yield f"{path}: {kinds if isinstance(kinds, str) else '|'.join(kinds)}"
    for key, value in schema.get("properties", {}).items():
        optional = "" if key in schema.get("required", ()) else "?"
        yield from _shape(value, f"{path}.{key}{optional}" if path else f"{key}{optional}", defined)
    if isinstance(schema.get("items"), dict):
        yield from _shape(schema["items"], f"{path}[]", defined)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _shape(schema["additionalProperties"], f"{path}.*", defined)
