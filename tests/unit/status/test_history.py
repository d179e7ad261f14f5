from __future__ import annotations

import tracemalloc

import pytest

from agent.core.export_event import Reason
from agent.core.links.lag import LinkRate
from agent.core.links.lifecycle import Status
from agent.status.history import (
    EVERY,
    RATE_WINDOW,
    SECONDS,
    STEPS,
    TRANSITIONS,
    WINDOW,
    History,
    LinkSample,
    MessageRate,
    Range,
    StepBuffer,
    StepSample,
)
from tests.unit.status.serving import Serve
from tests.unit.status.test_board import LINK

NOW = 1_800_000_000.0


def sample(at: float, forwarded: int = 0, backlog: int | None = None) -> LinkSample:
    return LinkSample(at, forwarded, 2 * forwarded, 3, backlog, 0.25)


def test_the_last_transitions_are_kept() -> None:
    history = History()
    for number in range(TRANSITIONS + 10):
        if number % 2:
            history.add_transition(NOW + number, Status.BACKOFF, Reason.UPSTREAM_LOST, "gone")
        else:
            history.add_transition(NOW + number, Status.RUNNING, Reason.OPENED, "")
    told = history.view(sample(NOW + 100))["transitions"]
    assert len(told) == TRANSITIONS
    assert told[-1] == {
        "at": "2027-01-15T08:00:59.000Z",
        "status": "backoff",
        "reason": "upstream_lost",
        "error": "gone",
    }
    assert told[-2]["error"] is None


def test_samples_reach_back_a_quarter_of_an_hour_and_end_now() -> None:
    history = History()
    for second in range(2000):
        if history.is_due(NOW + second):
            history.add_sample(sample(NOW + second, second, backlog=second % 2 or None))
    told = history.view(sample(NOW + 2000, 2000))["samples"]
    assert told[-1]["forwarded"] == 2000
    assert told[-2]["forwarded"] == 1995
    assert WINDOW - EVERY <= told[-1]["forwarded"] - told[0]["forwarded"] <= WINDOW
    assert {each["backlog"] for each in told} == {1, None}
    assert told[0]["bytes"] == 2 * told[0]["forwarded"]
    assert (told[0]["in_flight"], told[0]["oldest_unconfirmed_seconds"]) == (3, 0.25)


def test_longer_ranges_have_fewer_samples_and_keep_what_waited_most() -> None:
    history = History()
    for second in range(0, 90_000, 15):
        history.add_sample(sample(NOW + second, second, backlog=9_000 if second == 50_010 else 1))
    views = {span: history.view(sample(NOW + 90_000, 90_000, backlog=2), span) for span in (Range.HOUR, Range.DAY)}
    for span, told in views.items():
        found = told["samples"]
        assert (told["range"], told["step_seconds"]) == (span, STEPS[span])
        assert len(found) == SECONDS[span] / STEPS[span] + 1
        assert set(found[0]) == {"at", "forwarded", "backlog", "oldest_unconfirmed_seconds"}
        assert SECONDS[span] - STEPS[span] <= found[-1]["forwarded"] - found[0]["forwarded"] <= SECONDS[span]
    assert max(each["backlog"] or 0 for each in views[Range.DAY]["samples"]) == 9_000


async def test_a_range_is_asked_for(serve: Serve) -> None:
    served = await serve()
    for span in Range:
        _, told = await served.ask(f"/api/links/{LINK.id}?range={span}")
        assert told["history"]["range"] == span
    assert (await served.ask(f"/api/links/{LINK.id}"))[1]["history"]["range"] == "15m"
    status, told = await served.ask(f"/api/links/{LINK.id}?range=1y")
    assert (status, told["error"]) == (400, "range has to be one of 15m, 1h, 24h")


def test_a_clock_that_is_set_back_stops_nothing() -> None:
    history = History()
    history.add_sample(sample(NOW))
    assert not history.is_due(NOW + EVERY - 1)
    assert history.is_due(NOW - 3600)


def full() -> History:
    history = History()
    for number in range(100):
        history.add_transition(
            NOW + number, Status.BACKOFF, Reason.UPSTREAM_LOST, f"upstream origin: gone, attempt {number}"
        )
    day, quarter = SECONDS[Range.DAY], SECONDS[Range.QUARTER]
    for number in (*range(0, int(day), 600), *range(int(day), int(day + 4 * quarter), 15)):
        history.add_sample(sample(NOW + number, 10**6 + number, backlog=10**6))
    return history


def test_two_thousand_full_ones_cost_little() -> None:
    kept = [full()]  # brings the texts that all links share
    costs = []
    tracemalloc.start()
    for _ in range(3):  # the interpreter's own tables may grow in one of them
        before, _ = tracemalloc.get_traced_memory()
        kept += [full() for _ in range(10)]
        costs.append((tracemalloc.get_traced_memory()[0] - before) / 10)
    tracemalloc.stop()
    assert 2000 * min(costs) < 30 * 1024**2


@pytest.mark.parametrize(
    ("samples", "flow"),
    [
        ([], LinkRate(0.0, None)),
        ([(30, 0, None)], LinkRate(10.0, None)),
        ([(30, 0, None), (15, 150, 100)], LinkRate(10.0, 20.0)),  # a link that starts doesn't know what waits
        ([(30, 0, 1_300), (15, 150, None)], LinkRate(10.0, -30.0)),
        ([(30, 0, None), (0.5, 299, 100)], LinkRate(10.0, None)),
        ([(90, 0, 100), (75, 0, 400), (45, 75, 400), (15, 150, 0)], LinkRate(5.0, 0.0)),
    ],
)
def test_what_a_link_forwards_and_how_its_backlog_grows_over_the_last_minute(
    samples: list[tuple[float, int, int | None]], flow: LinkRate
) -> None:
    history = History()
    for ago, forwarded, backlog in samples:
        history.add_sample(LinkSample(1_000 - ago, forwarded, 0, 0, backlog, 0.0))
    assert history.flow(LinkSample(1_000, 300, 0, 0, 400, 0.0)) == flow


def tier_of(*steps: tuple[float, int, int | None, float], size: int = 3) -> list[StepSample]:
    tier = StepBuffer(60.0, size)
    for step in steps:
        tier.put(StepSample(*step))
    return list(tier)


def test_a_step_has_the_last_total_and_the_most_that_waited() -> None:
    assert tier_of((0.0, 5, 10, 0.5), (15.0, 9, None, 2.0), (59.0, 12, 4, 0.0)) == [StepSample(59.0, 12, 10, 2.0)]


def test_the_oldest_step_makes_room_for_the_latest() -> None:
    found = tier_of(*((60.0 * at, at, at, 0.0) for at in range(8)))
    assert [step.forwarded for step in found] == [5, 6, 7]


def test_a_full_tier_merges_into_its_latest_step() -> None:
    steps = [(60.0 * at, at, at, 0.0) for at in range(5)]
    assert [step.forwarded for step in tier_of(*steps, (245.0, 50, None, 0.0))] == [2, 3, 50]


def test_an_unknown_backlog_stays_unknown_and_a_huge_one_is_the_most_there_is() -> None:
    assert [step.backlog for step in tier_of((0.0, 0, None, 0.0), (60.0, 0, 2**40, 0.0))] == [None, 2**32 - 2]


def test_a_clock_that_is_set_back_begins_another_step() -> None:
    assert [step.at for step in tier_of((600.0, 1, 0, 0.0), (0.0, 2, 0, 0.0))] == [600.0, 0.0]


def moving(seconds: int, each: int, *, begin: float = 0.0) -> MessageRate:
    pace = MessageRate(begin, 1_000)
    for second in range(1, seconds + 1):
        pace.add(begin + second, 1_000 + each * second)
    return pace


def test_it_is_the_average_of_the_last_seconds() -> None:
    assert moving(100, 18).rate(100.4, 1_000 + 1_800) == pytest.approx(18, rel=0.1)
    assert moving(3, 18).rate(3, 1_054) == 18


def test_it_falls_to_zero_by_itself() -> None:
    pace = moving(100, 18)
    assert 0 < pace.rate(105, 2_800) < 18
    assert pace.rate(100 + RATE_WINDOW + 1, 2_800) == 0


def test_what_begins_to_move_after_a_rest_is_not_averaged_over_the_rest() -> None:
    pace = MessageRate(0, 5)
    pace.add(1_000, 25)
    assert pace.rate(1_000, 25) == 20 / RATE_WINDOW


def test_a_total_that_shrinks_and_a_clock_that_is_set_back_begin_anew() -> None:
    pace = moving(100, 18)
    pace.add(101, 10)
    assert pace.rate(103, 30) == 10
    pace.add(50, 30)
    assert pace.rate(52, 40) == 5
