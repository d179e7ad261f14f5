"""What is told of a link that doesn't get better."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from structlog.testing import capture_logs

from agent.core.links import lifecycle
from agent.core.links.lifecycle import Blocked, Event, Failed, LinkState, Signal
from agent.errors import Side
from agent.runtime.link_log import MOST_ALIKE, MOST_NAMED, REMIND_EVERY, CauseLog, LinkLog
from agent.status.board import Board
from tests.unit.status.test_board import LINK


def test_the_same_failure_is_told_once_and_then_now_and_then() -> None:
    now = 0.0
    state = LinkState()
    log = LinkLog(lambda: now)

    def send(*events: Event) -> None:
        nonlocal state
        for event in events:
            before, (state, _) = state, lifecycle.step(state, event)
            log.changed(LINK, before, state)

    with capture_logs() as told:
        send(Signal.START)
        for _ in range(int(REMIND_EVERY) * 2):
            now += 1
            send(Failed("upstream origin: away"), Signal.CLOSED, Signal.RETRY_DUE)
        send(
            Failed("upstream origin: login refused"),
            Signal.CLOSED,
            Signal.RETRY_DUE,
            Signal.OPENED,
        )
    assert [(each["event"], each["status"], each["error"]) for each in told] == [
        ("link changed", "backoff", "upstream origin: away"),
        ("link still down", "backoff", "upstream origin: away"),
        ("link changed", "backoff", "upstream origin: login refused"),
        ("link changed", "running", None),
    ]
    assert {each["link"] for each in told} == {LINK.id}
    assert told[1]["attempts"] == REMIND_EVERY + 1


def after(state: LinkState, *events: Event) -> LinkState:
    for event in events:
        state, _ = lifecycle.step(state, event)
    return state


def test_of_many_links_that_one_trouble_stops_the_first_few_are_told() -> None:
    now = 0.0
    log = LinkLog(lambda: now)
    links = [replace(LINK, id=f"{number:08x}") for number in range(100)]
    running = after(LinkState(), Signal.START, Signal.OPENED)
    alarmed = after(running, Blocked(Side.DOWNSTREAM, "low on memory"))
    with capture_logs() as told:
        for link in links:
            log.changed(link, running, alarmed)
        for link in links:
            log.changed(link, alarmed, running)
    few = [link.id for link in links[:MOST_ALIKE]]
    assert [(each["link"], each["status"]) for each in told] == [
        *((link_id, "blocked") for link_id in few),
        *((link_id, "running") for link_id in few),
    ]
    with capture_logs() as told:
        now += 60
        log.changed(links[-1], running, alarmed)
        log.changed(links[-1], alarmed, after(alarmed, Failed("upstream origin: away"), Signal.CLOSED))
    assert [each["status"] for each in told] == ["blocked", "backoff"]


def test_a_cause_is_a_line_when_it_begins_and_one_when_it_is_over() -> None:
    now = 1_000.0
    log = CauseLog(Board(clock=lambda: now, owner="a"))

    def cause(broker: str, *links: str, **more: Any) -> dict[str, Any]:
        return {
            "side": "upstream",
            "broker": broker,
            "trouble": "connection lost",
            "since": "1970-01-01T00:16:40Z",
            "links": links,
            "error": "why",
            **more,
        }

    many = tuple(f"{number:08x}" for number in range(100))
    with capture_logs() as told:
        log.look([cause("10.0.0.1:5672", *many[:60])])
        now += 100
        log.look([cause("dc1", *many[50:]), cause("dc2", "ffffffff")])
        now += 97
        log.look([cause("dc2", "ffffffff")])
        log.look([cause("dc2", "ffffffff")])
    assert [(each["event"], each["broker"], each["links"], each.get("lasted")) for each in told] == [
        ("trouble begins", "10.0.0.1:5672", 60, None),
        ("trouble begins", "dc2", 1, None),
        ("trouble is over", "dc1", 100, "3 min 17 s"),
    ]
    assert (told[0]["some"], told[0]["error"]) == ([*many[:MOST_NAMED]], "why")


def test_two_causes_of_one_kind_at_one_broker_are_told_apart() -> None:
    log = CauseLog(Board(clock=lambda: 1_000.0, owner="a"))
    alike = {"side": "upstream", "broker": "dc1", "trouble": "permission missing", "error": "why"}
    first, second = ({**alike, "since": "1970-01-01T00:16:40Z", "links": [link]} for link in ("aaaa", "bbbb"))
    with capture_logs() as told:
        log.look([first, second])
        log.look([second])
        log.look([])
    assert [(each["event"], each["some"]) for each in told] == [
        ("trouble begins", ["aaaa"]), ("trouble begins", ["bbbb"]),
        ("trouble is over", ["aaaa"]), ("trouble is over", ["bbbb"]),
    ]  # fmt: skip
