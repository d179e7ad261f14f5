from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.data.splice import Counts
from agent.core.export_event import FIELDS, AgentStatus, FieldType
from agent.core.links.lag import LagCritical
from agent.core.links.lifecycle import Failed, LinkState, Phase, Status
from agent.core.links.upstream_account import Compared
from agent.core.model import LinkSettings
from agent.errors import Failure, FailureKind, Side
from agent.status.board import Board
from agent.status.entry import Gauges
from agent.status.export.exporter import ExportEvents
from agent.status.export.files import ExportLine
from agent.status.views import history_view, link_view
from tests.unit.status.test_board import BROKEN, LINK, RUNNING, Clock

GAUGES = Gauges(
    in_flight=7,
    unsettled=9,
    bindings=2,
    prefetch=1000,
    backlog=12,
    oldest_in_flight=1.5,
    lag=0.25,
    last_probe=1_800_000_000.0,
    upstream_cluster="dc1",
)
PYTHON: dict[FieldType, Any] = {
    FieldType.STRING: str,
    FieldType.LONG: int,
    FieldType.DOUBLE: float,
    FieldType.BOOLEAN: bool,
    FieldType.FAILURE: dict,
    FieldType.HISTOGRAM: dict,
}


def board(**more: Any) -> Board:
    made = Board(Clock(), "dc2-a", group="dc2", cluster="rabbit@dc2")
    counts = Counts(
        forwarded=3, bytes=300, redelivered=1, returned=2, taken=20, given_back=3, dropped={"max_hops": 4, "visited": 1}
    )
    counts.transfer.observe(0.004, 2)
    counts.transfer.observe(60.0)
    made.put(replace(LINK, **more), LinkState(), counts, lambda: GAUGES)
    return made


def told(line: ExportLine) -> dict[str, Any]:
    assert line.text.endswith(b"\n")
    assert line.text.count(b"\n") == 1
    event: dict[str, Any] = json.loads(line.text)
    assert list(event) == list(FIELDS)
    assert event["ts"][:10] == line.day
    for name, value in event.items():
        assert value is None or isinstance(value, PYTHON[FIELDS[name]]), name
    return event


def test_a_transition_tells_all_of_its_link() -> None:
    found = board()
    found.changed(LINK.id, BROKEN)
    event = told(ExportEvents(found).transition(found[LINK.id], Status.RUNNING))
    transfer = event.pop("transfer")
    assert event == {
        "schema": 3, "type": "transition", "ts": "2027-01-15T08:00:00.000000Z", "seq": 1,
        "agent": "dc2-a", "group": "dc2", "cluster": "rabbit@dc2",
        "link": "1a2b3c4d", "kind": "exchange", "vhost": "/", "name": "orders",
        "upstream": "origin", "upstream_name": "there", "upstream_cluster": "dc1", "moves_from": None,
            "uri": "amqp://h:5672/%2f",
        "status": "backoff", "previous": "running", "reason": "upstream_other", "error": "connection refused",
        "failure": {
            "kind": "failing", "side": "upstream", "broker": "dc1", "user": None, "vhost": None,
            "object": None, "object_type": None, "permission": None,
        },
        "forwarded": 3, "bytes": 300, "redelivered": 1, "dropped": 5, "quarantined": 0, "returned": 2,
        "taken": 20, "given_back": 3, "unsettled": 9,
        "looks": None, "entered": None, "acknowledged": None, "growth": None,
        "settled": None, "settled_again": None, "waiting": None,
        "reconnects": 1, "blocked_seconds": 0.0,
        "backlog": 12, "in_flight": 7, "oldest_unconfirmed_seconds": 1.5,
        "lag_seconds": 0.25, "last_probe": "2027-01-15T08:00:00.000Z", "lag_is_critical": None,
        "bindings": 2, "interval": None,
    }  # fmt: skip
    assert len(transfer["count"]) == len(transfer["le"]) + 1
    assert transfer["count"][transfer["le"].index(0.005)] == 2
    assert (transfer["count"][-1], transfer["sum"]) == (3, 60.008)


def test_what_could_be_compared_upstream_is_told() -> None:
    found = board()
    gauges = replace(GAUGES, upstream=Compared(2, entered=9, acknowledged=7, growth=-1, settled=7, waiting=3))
    found.put(LINK, LinkState(), Counts(), lambda: gauges)
    event = told(ExportEvents(found).sample(found[LINK.id]))
    expected = {"looks": 2, "entered": 9, "acknowledged": 7, "growth": -1, "settled": 7, "settled_again": 0}
    assert {name: event[name] for name in (*expected, "waiting")} == expected | {"waiting": 3}


def test_a_sample_repeats_the_reason_and_knows_no_previous_status() -> None:
    found = board()
    event = told(ExportEvents(found).sample(found[LINK.id]))
    assert (event["type"], event["status"], event["previous"]) == ("sample", "starting", None)
    assert (event["reason"], event["error"]) == ("appeared", None)


def test_a_sample_has_the_reason_of_the_transition_before_it() -> None:
    found = board()
    found.changed(LINK.id, BROKEN)
    found.changed(LINK.id, replace(BROKEN, broken=Failed("timed out", Failure(FailureKind.UNREACHABLE, Side.UPSTREAM))))
    entry = found[LINK.id]
    sample, transition = (
        told(line) for line in (ExportEvents(found).sample(entry), ExportEvents(found).transition(entry, None))
    )
    assert sample["reason"] == transition["reason"] == "upstream_other"
    assert [each["reason"] for each in history_view(found, entry)["transitions"]] == [
        "appeared",
        "upstream_other",
        "upstream_unreachable",
    ]


def test_an_agent_event_has_no_link() -> None:
    found = Board(Clock(), "dc2-a")
    event = told(ExportEvents(found).of_agent(AgentStatus.HEARTBEAT, 10.0))
    assert {name: value for name, value in event.items() if value is not None} == {
        "schema": 3,
        "type": "agent",
        "ts": "2027-01-15T08:00:00.000000Z",
        "seq": 1,
        "agent": "dc2-a",
        "status": "heartbeat",
        "interval": 10.0,
    }


def test_numbers_go_up_and_times_follow_the_clock_wherever_it_goes() -> None:
    clock = Clock()
    events = ExportEvents(Board(clock, "dc2-a"))
    steps = (0.000001, 86_400, -200_000)
    found = [told(events.of_agent(AgentStatus.HEARTBEAT, 10.0))]
    for step in steps:
        clock.now += step
        found.append(told(events.of_agent(AgentStatus.HEARTBEAT, 10.0)))
    assert [event["seq"] for event in found] == [1, 2, 3, 4]
    assert [event["ts"] for event in found] == [
        "2027-01-15T08:00:00.000000Z",
        "2027-01-15T08:00:00.000001Z",
        "2027-01-16T08:00:00.000001Z",
        "2027-01-14T00:26:40.000001Z",
    ]


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_any_text_makes_one_line(text: str) -> None:
    found = board(name=text, vhost=text, upstream=text)
    found.changed(LINK.id, LinkState(phase=Phase.WAITING, started=True, broken=Failed(text)))
    event = told(ExportEvents(found).transition(found[LINK.id], Status.RUNNING))
    assert (event["name"], event["vhost"], event["error"]) == (text, text, text or None)


def test_no_secret_is_told() -> None:
    found = board()
    assert b"s3ntinel" not in ExportEvents(found).sample(found[LINK.id]).text


LIMITS = (None, LagCritical(messages=5), LagCritical(seconds=60))


@given(
    st.sampled_from(LIMITS),
    st.lists(st.tuples(st.none() | st.integers(0, 9), st.integers(0, 9), st.sampled_from([1, 30, 90])), max_size=20),
)
def test_lines_say_of_the_lag_what_the_api_says(
    limit: LagCritical | None, course: list[tuple[int | None, int, float]]
) -> None:
    clock, counts, gauges = Clock(), Counts(), Gauges()
    made = Board(clock, "dc2-a")
    made.put(replace(LINK, settings=LinkSettings(lag_critical=limit)), RUNNING, counts, lambda: gauges)
    entry, written = made[LINK.id], ExportEvents(made)
    for backlog, forwarded, seconds in course:
        clock.now += seconds
        gauges.backlog = backlog
        counts.forwarded += forwarded
        event, shown = told(written.sample(entry)), link_view(made, entry)
        is_critical = None if shown["lag_critical"] is None else shown["critical_since"] is not None
        assert event["lag_is_critical"] is is_critical


def test_a_line_says_that_the_lag_is_critical_and_that_it_is_no_more() -> None:
    clock, waiting = Clock(), [0]
    made = Board(clock, "dc2-a")
    link = replace(LINK, settings=LinkSettings(lag_critical=LagCritical(messages=5)))
    made.put(link, RUNNING, Counts(), lambda: Gauges(backlog=waiting[0]))
    found = []
    for waiting[:] in ([4], [5], [5], [4]):
        found.append(told(ExportEvents(made).sample(made[LINK.id]))["lag_is_critical"])
    assert found == [False, True, True, False]
