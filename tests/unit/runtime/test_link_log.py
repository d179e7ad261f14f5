"""What is told of a link that doesn't get better."""

from __future__ import annotations

from structlog.testing import capture_logs

from agent.core.links import lifecycle
from agent.core.links.lifecycle import Event, Failed, LinkState, RetryDue
from agent.runtime.link_log import REMIND_EVERY, LinkLog
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
        send(lifecycle.Start())
        for _ in range(int(REMIND_EVERY) * 2):
            now += 1
            send(Failed("upstream origin: away"), lifecycle.Closed(), RetryDue())
        send(Failed("upstream origin: login refused"), lifecycle.Closed(), RetryDue(), lifecycle.Opened())
    assert [(each["event"], each["status"], each["error"]) for each in told] == [
        ("link changed", "backoff", "upstream origin: away"),
        ("link still down", "backoff", "upstream origin: away"),
        ("link changed", "backoff", "upstream origin: login refused"),
        ("link changed", "running", None),
    ]
    assert {each["link"] for each in told} == {LINK.id}
    assert told[1]["attempts"] == REMIND_EVERY + 1
