"""The window's days and hours, and the buckets of statuses: no Spark runs."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from agent.core.links.lifecycle import Status
from agent.pipeline.schema import BUCKETS
from agent.pipeline.window import Bounds, hours, micros


@pytest.mark.parametrize(
    ("zone", "day", "length"),
    [
        ("UTC", date(2026, 3, 29), 24.0),
        ("Europe/Berlin", date(2026, 3, 29), 23.0),
        ("Europe/Berlin", date(2026, 10, 25), 25.0),
        ("Asia/Kolkata", date(2026, 3, 29), 24.0),
        ("Australia/Lord_Howe", date(2026, 4, 5), 24.5),
    ],
)
def test_days_are_as_long_as_the_zone_says(zone: str, day: date, length: float) -> None:
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    within = Bounds(micros(noon - timedelta(days=2)) + 1, micros(noon + timedelta(days=2)))
    found = [*hours(within, ZoneInfo(zone))]
    lengths = (one["hour_end"] - one["hour_start"] for one in found if one["day"] == day)
    assert sum(lengths) == length * 3600 * 1_000_000
    assert all(one["hour_end"] == other["hour_start"] for one, other in pairwise(found))
    assert (found[0]["hour_start"], found[-1]["hour_end"]) == (within.start, within.end)


def test_every_status_of_a_link_has_a_bucket() -> None:
    assert set(BUCKETS) == {status.value for status in Status}
