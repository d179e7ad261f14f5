"""`summary.json` is what its published schema says, whatever was found."""

import json
from dataclasses import replace

import jsonschema
import pytest

from agent.pipeline.findings.model import Fleet, ReportFindings, TimeSpent
from agent.pipeline.findings.publish import summary
from tests.acceptance.command import ROOT
from tests.pipeline.page.sample_findings import HOUR, findings

SCHEMA = json.loads((ROOT / "docs/summary.schema.json").read_text())
NOTHING = ReportFindings(
    findings(0).window, "UTC", {"read": 0, "bad": 0, "later_schema": 0}, Fleet(0, TimeSpent(), None, 0)
)


@pytest.mark.parametrize(
    "found",
    [findings(), findings(1, HOUR), replace(findings(), fleet=replace(findings().fleet, previous=None)), NOTHING],
)
def test_it_is_of_its_schema(found: ReportFindings) -> None:
    told = json.loads(json.dumps(summary(found)))
    jsonschema.validate(told, SCHEMA)
    assert set(told) == set(SCHEMA["required"]) == set(SCHEMA["properties"])


def test_it_tells_the_worst_alone() -> None:
    told = summary(findings(40))
    assert len(told["worst_links"]) == 10
    assert [outage["scope"] for outage in told["worst_outages"]] == ["upstream", None, "agent"]
    assert told["worst_outages"][0]["link"] is None
    assert told["previous"]["window"]["end"] == told["window"]["start"]
