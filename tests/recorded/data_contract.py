"""The report's tables as a data contract (Open Data Contract Standard 3): docs/report.odcs.yaml."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from agent.pipeline.schema import LINK, LINK_ATTRIBUTES, TABLES, VERSION
from tests.acceptance.command import ROOT

FILE: Final = ROOT / "docs/report.odcs.yaml"
HEAD: Final = "# The tables of `federation-agent report` (docs/pipeline.md). Written by `python -m tests.recorded`.\n"
STANDARD: Final = "v3.1.0"
LOGICAL: Final = {
    "string": "string", "bigint": "integer", "double": "number", "decimal": "number", "boolean": "boolean",
    "timestamp": "timestamp", "date": "date", "array": "array", "struct": "object",
}  # fmt: skip
OUTSIDE_BRACKETS: Final = re.compile(r",\s*(?![^<(]*[>)])")
ROW: Final = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| (?:(string|long|double|boolean) \| )?(.+?) \|$", re.MULTILINE)


def columns() -> dict[str, dict[str, str]]:
    """Each table's columns and their types, as Spark spells them."""
    return {
        table: dict(each.replace("`", "").split(" ", 1) for each in OUTSIDE_BRACKETS.split(declared))
        for table, declared in TABLES.items()
    }


def text() -> str:
    meanings = _described("pipeline.md")
    of_links = {name: said for name, said in _described("export.md").items() if name in {*LINK, *LINK_ATTRIBUTES}}
    contract = {
        "apiVersion": STANDARD,
        "kind": "DataContract",
        "id": "federation-agent-report",
        "name": "The report of federation-agent",
        "version": f"{VERSION}.0.0",
        "status": "active",
        "description": {
            "purpose": "How available links were, what they forwarded, and what failed and why.",
            "usage": "A table is a directory of Parquet files, partitioned by `date`; docs/pipeline.md has the rules.",
            "limitations": "A number that isn't known is null. Times are UTC.",
        },
        "schema": [
            {
                "name": table,
                "logicalType": "object",
                "physicalType": "table",
                "physicalName": f"OUTPUT/{table}",
                "dataGranularityDescription": meanings[table],
                "properties": [_column(name, kind, (of_links | meanings).get(name)) for name, kind in found.items()],
            }
            for table, found in columns().items()
        ],
    }
    return HEAD + yaml.safe_dump(contract, sort_keys=False, allow_unicode=True, width=120)


def _column(name: str, kind: str, meaning: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "logicalType": _logical(kind), "physicalType": kind}
    if meaning:
        found["description"] = meaning
    if kind.startswith("array<"):
        element = kind.removeprefix("array<").removesuffix(">")
        found["items"] = {"logicalType": _logical(element), "physicalType": element}
    if kind.startswith("struct<"):
        inside = kind.removeprefix("struct<").removesuffix(">").split(", ")
        found["properties"] = [_column(named, typed, None) for named, typed in (each.split(": ") for each in inside)]
    if name == "date":
        found |= {"partitioned": True, "partitionKeyPosition": 1}
    return found


def _logical(kind: str) -> str:
    return LOGICAL[re.split("[<(]", kind)[0]]


def _described(document: str) -> dict[str, str]:
    """What a document's tables say of each name; without links, which lead elsewhere from there."""
    found = ROW.findall((ROOT / "docs" / document).read_text())
    return {
        name: re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", said)
        for names, _, said in found
        for name in re.findall(r"`(\w+)`", names)
    }
