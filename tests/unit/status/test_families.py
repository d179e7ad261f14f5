"""Every metric that is told is documented, and nothing else is."""

from __future__ import annotations

import asyncio
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from agent.status import expiry, metrics
from agent.status.families import INFO, LINK_FAMILIES, Family
from agent.status.stuck import STUCK
from tests.unit.status.test_board import BROKEN, RUNNING
from tests.unit.status.test_metrics import filled

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "http.md"
OF_AGENT = (INFO, STUCK, *metrics.AGENT_FAMILIES.values(), *expiry.FAMILIES)


def row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.type} | {labels} | {family.help} |"


def test_the_tables_of_the_document_are_those_of_the_code() -> None:
    told = [line for line in DOCUMENT.read_text().splitlines() if line.startswith(("| `federation_", "| `rabbitmq_"))]
    assert told == [row(family) for family in (*LINK_FAMILIES, *OF_AGENT)]


def test_every_series_has_the_labels_and_the_type_that_are_documented() -> None:
    text = b"".join(asyncio.run(metrics.exposition(filled(RUNNING, BROKEN)))).decode()
    found = {family.name: family for family in text_string_to_metric_families(text)}
    for family in (*LINK_FAMILIES, *OF_AGENT):
        told = found.pop(family.name.removesuffix("_total"))
        assert told.type == family.type
        assert told.documentation == family.help
        common = set() if family in OF_AGENT else set(metrics.LABELS)
        for sample in told.samples:
            assert set(sample.labels) | {"le"} == common | set(family.labels) | {"le"}, family.name
    assert {name for name in found if not name.startswith("process_")} == set()
