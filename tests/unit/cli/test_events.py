"""`events`: of one link or all, also of one that is gone, and as they come."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent.cli.events import show_events
from agent.cli.link_names import UnknownLinkError
from agent.cli.remote import Remote


def change(seq: int, link: str, minutes: float, **more: Any) -> dict[str, Any]:
    at = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")
    named = {"link": link, "kind": "exchange", "vhost": "/", "name": f"of-{link}", "upstream": "dc1"}
    return {"seq": seq, "at": at, **named, "status": "running", "previous": "starting", "reason": "opened"} | {
        "error": None,
        **more,
    }


class Agent(Remote):
    """One whose links changed so, and later so; nothing is defined any more."""

    def __init__(self, *changes: list[dict[str, Any]]) -> None:
        super().__init__("http://127.0.0.1:1", None)
        self.asked: list[int] = []
        self._changes = changes

    def transitions(self, *, after: int) -> list[dict[str, Any]]:
        self.asked.append(after)
        return self._changes[len(self.asked) - 1]

    def links(self, vhost: str | None = None) -> list[dict[str, Any]]:
        del vhost
        return []


def former() -> list[dict[str, Any]]:
    return [change(1, "aaaa", 90), change(2, "bbbb", 5, status="backoff", reason="upstream_lost", error="away")]


def test_a_link_that_is_gone_has_its_events_too(capsys: pytest.CaptureFixture[str]) -> None:
    show_events(Agent(former()), "//of-bbbb", since=None, follow=False, as_json=False)
    [line] = capsys.readouterr().out.splitlines()
    assert line[20:] == "  bbbb  //of-bbbb from dc1: starting → backoff (upstream_lost): away"
    show_events(Agent(former()), None, since=600.0, follow=False, as_json=True)
    assert [each["seq"] for each in json.loads(capsys.readouterr().out)] == [2]
    with pytest.raises(UnknownLinkError, match="did you mean '//of-aaaa'"):
        show_events(Agent(former()), "of-aaaa", since=None, follow=False, as_json=False)


def test_what_comes_is_followed_after_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    agent, slept = Agent(former(), [], [change(7, "bbbb", 0)]), []

    def sleep(pause: float) -> None:
        slept.append(pause)
        if len(slept) == 3:
            raise KeyboardInterrupt

    show_events(agent, "bbbb", since=None, follow=True, as_json=True, sleep=sleep)
    assert [json.loads(line)["seq"] for line in capsys.readouterr().out.splitlines()] == [2, 7]
    assert agent.asked == [0, 2, 2]
