from __future__ import annotations

import pytest

from agent.core.export_event import Reason
from agent.core.links import lifecycle
from agent.core.links.lifecycle import Blocked, Event, Failed, LinkState, Signal
from agent.core.links.reasons import WORDS, reason_of
from agent.errors import Failure, FailureKind, Side

REFUSED = Failure(FailureKind.INVALID, Side.UPSTREAM, is_permanent=True)
OPENED = (Signal.START, Signal.OPENED)
UNWANTED = lifecycle.Unwanted(1.0)
REMOVED = (UNWANTED, Signal.CLOSED, lifecycle.RemovalDue(messages=False))


def after(*events: Event) -> LinkState:
    state = LinkState()
    for event in events:
        state, _ = lifecycle.step(state, event)
    return state


@pytest.mark.parametrize(
    ("before", "event", "reason"),
    [
        ((Signal.START,), Signal.OPENED, Reason.OPENED),
        (OPENED, Signal.RESTART, Reason.RESTARTED),
        (OPENED, Blocked(Side.DOWNSTREAM, "memory"), Reason.DOWNSTREAM_BLOCKED),
        (OPENED, Blocked(Side.UPSTREAM, "memory"), Reason.UPSTREAM_BLOCKED),
        ((*OPENED, Blocked(Side.UPSTREAM)), lifecycle.Unblocked(Side.UPSTREAM), Reason.UNBLOCKED),
        (OPENED, lifecycle.Stalled("waits"), Reason.NO_CONFIRMS),
        ((*OPENED, lifecycle.Stalled("waits")), Signal.PROGRESSED, Reason.PROGRESSED),
        (OPENED, Failed("cut", Failure(FailureKind.LOST, Side.DOWNSTREAM)), Reason.DOWNSTREAM_LOST),
        (OPENED, Failed("who knows"), Reason.UPSTREAM_OTHER),
        (
            (Signal.START,),
            Failed("no", REFUSED),
            Reason.UPSTREAM_REFUSED,
        ),
        (
            (*OPENED, Failed("cut"), Signal.CLOSED, Signal.RETRY_DUE),
            Signal.OPENED,
            Reason.OPENED,
        ),
        ((*OPENED, Failed("cut"), Signal.CLOSED), Signal.RESTART, Reason.RESTARTED),
        (OPENED, lifecycle.Pause(), Reason.PAUSED),
        ((*OPENED, lifecycle.Pause()), Signal.RESUME, Reason.RESUMED),
        (OPENED, lifecycle.StandAside("another agent"), Reason.SERVED_ELSEWHERE),
        (
            (Signal.START, lifecycle.StandAside("another agent")),
            Signal.TAKE_OVER,
            Reason.TAKEN_OVER,
        ),
        (OPENED, UNWANTED, Reason.UNWANTED),
        ((*OPENED, UNWANTED, Signal.CLOSED), Signal.WANTED_AGAIN, Reason.WANTED),
        ((*OPENED, UNWANTED, Signal.CLOSED), lifecycle.RemovalDue(messages=False), Reason.REMOVED),
        ((*OPENED, *REMOVED), Signal.KEPT, Reason.UNWANTED),
        ((*OPENED, *REMOVED), Signal.WANTED_AGAIN, Reason.WANTED),
        ((*OPENED, UNWANTED, Signal.CLOSED), Signal.STOP, Reason.STOPPED),
        (OPENED, Signal.STOP, Reason.STOPPED),
    ],
)
def test_why_a_link_changed_its_status(before: tuple[Event, ...], event: Event, reason: Reason) -> None:
    state = after(*before)
    reached, _ = lifecycle.step(state, event)
    assert reached.status is not state.status
    assert reason_of(state, reached) is reason


def test_a_new_link_has_appeared() -> None:
    assert reason_of(None, LinkState()) is Reason.APPEARED


AWAY = {
    *(FailureKind.UNREACHABLE, FailureKind.UNRESOLVED, FailureKind.NOT_ANSWERING),
    *(FailureKind.LOGIN, FailureKind.PERMISSION, FailureKind.NO_VHOST),  # of one of several addresses
}
EXPECTED = {
    **dict.fromkeys(AWAY, "unreachable"),
    **dict.fromkeys((FailureKind.LOST, FailureKind.TLS), "lost"),
    **dict.fromkeys((FailureKind.CLOSED, FailureKind.NOT_FOUND), "closed"),
    FailureKind.HEARTBEATS_MISSED: "heartbeat",
    FailureKind.STOOD_STILL: "standstill",
}


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("kind", FailureKind)
def test_each_kind_of_failure_on_each_side_has_a_word(side: Side, kind: FailureKind) -> None:
    expected = EXPECTED.get(kind, "other")
    assert expected in WORDS
    for failure, word in ((Failure(kind, side), expected), (Failure(kind, side, is_permanent=True), "refused")):
        failed = after(*OPENED, Failed("cut", failure))
        assert reason_of(LinkState(), failed) == f"{side}_{word}"


def test_a_link_without_a_lease_waits_for_the_downstream() -> None:
    state = after(Signal.START, lifecycle.StandAside("waits for its lease", lifecycle.NO_LEASE))
    assert (state.status, state.error) == (lifecycle.Status.BACKOFF, "waits for its lease")
    assert reason_of(LinkState(), state) is Reason.DOWNSTREAM_LOST
