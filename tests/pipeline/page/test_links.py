"""What a timeline draws of a slot."""

from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest

from agent.pipeline.findings.model import TimeSpent
from agent.pipeline.page.formatting import Calendar
from agent.pipeline.page.links import timelines
from agent.pipeline.schema import Bucket
from tests.pipeline.page.sample_findings import findings


@pytest.mark.parametrize(("down", "drawn"), [(0.5, False), (1.99, False), (2.0, True), (30.0, True)])
def test_a_takeover_is_no_outage(down: float, drawn: bool) -> None:
    found = findings(1)
    slots = {0: TimeSpent({Bucket.UP: 3600 - down, Bucket.DOWN: down})}
    shown = timelines(replace(found, timelines={found.worst[0].identity: slots}), Calendar(ZoneInfo("UTC")))
    assert ("partly down" in str(shown)) is drawn
