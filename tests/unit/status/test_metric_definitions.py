"""Every metric that is shown is documented, and nothing else is."""

from __future__ import annotations

import asyncio
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from agent.status import metrics
from agent.status.metric_definitions import AGENT_METRICS, CERTIFICATE, INFO, LINK_METRICS, STUCK, TOKEN, Metric
from tests.unit.status.test_board import BROKEN, RUNNING
from tests.unit.status.test_metrics import filled

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "http.md"
OF_AGENT = (INFO, STUCK, *AGENT_METRICS, CERTIFICATE, TOKEN)


def row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.type} | {labels} | {metric.help} |"


def test_the_tables_of_the_document_are_those_of_the_code() -> None:
    told = [line for line in DOCUMENT.read_text().splitlines() if line.startswith(("| `federation_", "| `rabbitmq_"))]
    assert told == [row(metric) for metric in (*LINK_METRICS, *OF_AGENT)]


def test_every_series_has_the_labels_and_the_type_that_are_documented() -> None:
    text = b"".join(asyncio.run(metrics.exposition(filled(RUNNING, BROKEN)))).decode()
    found = {metric.name: metric for metric in text_string_to_metric_families(text)}
    for metric in (*LINK_METRICS, *OF_AGENT):
        told = found.pop(metric.name.removesuffix("_total"))
        assert told.type == metric.type
        assert told.documentation == metric.help
        common = set() if metric in OF_AGENT else set(metrics.LABELS)
        for sample in told.samples:
            assert set(sample.labels) | {"le"} == common | set(metric.labels) | {"le"}, metric.name
    assert {name for name in found if not name.startswith("process_")} == set()
