"""Judgements of what brokers show when a connection opens: certificates, limits, clocks."""

from __future__ import annotations

import pytest

from agent.check.connections import DAY, BrokerFacts, Expiring, judge_broker, judge_clock, judge_pair
from agent.check.findings import FindingLevel, Topic


def opened(**more: object) -> BrokerFacts:
    settings = {"frame_max": 131072, "channel_max": 2047, "version": "3.13.0", "cluster": "c"} | more
    return BrokerFacts(where="upstream a", vhost="/", user="u", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(("days", "level"), [(-1, FindingLevel.ERROR), (29, FindingLevel.WARNING), (31, None)])
def test_certificates(days: float, level: FindingLevel | None) -> None:
    certified = opened(is_encrypted=True, is_verified=True, certificates=(Expiring("it", days * DAY),))
    assert [each.level for each in judge_broker(certified, 0.0)] == ([] if level is None else [level])


def test_few_channels() -> None:
    [found] = judge_broker(opened(channel_max=4), 0.0)
    assert found.topic is Topic.LIMITS


def test_a_destination_that_takes_less() -> None:
    found = list(judge_pair(opened(), opened(frame_max=8192, limits_deliveries=True)))
    assert [each.level for each in found] == [FindingLevel.NOTE, FindingLevel.NOTE]
    assert list(judge_pair(opened(), opened())) == []


@pytest.mark.parametrize(("difference", "found"), [(0.0, 0), (4.9, 0), (-4.9, 0), (6.0, 1), (-6.0, 1)])
def test_clocks(difference: float, found: int) -> None:
    assert len(list(judge_clock("here", difference))) == found
