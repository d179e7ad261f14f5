"""`links`, `describe` and `events`: watched, in all fields, as people read them, also of a link that is gone."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent.cli.links import REFRESH, Selection, described, show_events, statuses_of, watch_links
from agent.cli.remote import Remote
from agent.errors import UnknownLinkError, UsageError
from tests.acceptance.command import COMMAND
from tests.unit.cli.test_link_table import NOW, link

ENDS_WITHIN = 0.02  # seconds


@contextmanager
def agent_without_links(*, overview: bytes = b"{}", away: Sequence[int] = ()) -> Iterator[str]:
    """Its address; it isn't there for these of the questions."""
    asked = 0

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal asked
            asked += 1
            self.send_response(503 if asked in away else 200)
            self.end_headers()
            self.wfile.write(overview if self.path == "/api/overview" else b"[]")

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(ENDS_WITHIN,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def watched(agent: str, form: str, seconds: int) -> None:
    """Until somebody interrupts it."""
    slept: list[float] = []

    def sleep(pause: float) -> None:
        slept.append(pause)
        if sum(slept) > seconds:
            raise KeyboardInterrupt

    watch_links(Remote(agent, None), Selection(), form, sleep=sleep)
    assert {*slept} == {REFRESH}


def test_statuses_are_asked_for_in_peoples_words() -> None:
    assert statuses_of(["Down", "stalled", "backoff"]) == ("backoff", "invalid", "stalled")
    for wrong, meant in (("brocken", "broken"), ("runing", "running")):
        with pytest.raises(UsageError, match=rf"^--status '{wrong}' is none of .*; did you mean '{meant}'\?$"):
            statuses_of([wrong])


def test_watching_goes_on_where_the_agent_was_away(capsys: pytest.CaptureFixture[str]) -> None:
    with agent_without_links(away=(3, 4)) as agent:
        watched(agent, "json", 5)
    shown, errors = capsys.readouterr()
    assert shown.splitlines() == ["[]"] * 4
    assert errors.splitlines() == [f"agent {agent}: the response is not an agent's: check the address"]


def test_watching_says_once_that_the_agent_cannot_read_its_broker(capsys: pytest.CaptureFixture[str]) -> None:
    with agent_without_links(overview=b'{"unread": "login refused"}') as agent:
        watched(agent, "text", 3)
    shown, errors = capsys.readouterr()
    assert shown.splitlines() == ["no links"] * 4
    assert errors.splitlines() == [f"agent {agent}: it can't read its broker, so this may be old: login refused"]


@pytest.mark.parametrize("form", ["text", pytest.param("json", marks=pytest.mark.thorough)])
def test_watching_ends_once_nobody_reads(form: str) -> None:
    with agent_without_links() as agent:
        watching = [COMMAND, "links", "--watch", "--format", form, "--url", agent]
        with subprocess.Popen(watching, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout
            assert process.stderr
            assert process.stdout.readline()
            process.stdout.close()
            try:
                assert (process.wait(20), process.stderr.read()) == (0, b"")
            finally:
                process.kill()


def fields(**more: Any) -> dict[str, str]:
    found = link(1, reason="opened", backlog_last=None, backlog_last_at=None, lag_critical=None, **more)
    return {line.split()[0]: line.partition(" ")[2].strip() for line in described(found, now=NOW)}


def test_numbers_have_commas() -> None:
    found = fields(backlog=42_013, lag_seconds=1.5, behind_seconds=196.816)
    assert (found["forwarded"], found["backlog"]) == ("12,345,678", "42,013")
    assert (found["lag_seconds"], found["behind_seconds"]) == ("1.5 s", "3 min 16 s")


def test_a_rate_limit_is_in_words() -> None:
    found = fields(rate_limit={"messages": 2_000, "bytes": 10_000_000}, limited=True)
    assert (found["rate_limit"], found["limited"]) == ("2,000 messages/s and 10,000,000 bytes/s", "True")
    assert fields(rate_limit=None)["rate_limit"] == "-"


def test_the_advice_is_that_of_the_agent() -> None:
    assert fields(advice="Run `this`.")["Do:"] == "Run `this`."
    assert "advice" not in fields(advice="Run `this`.")
    assert "Do:" not in fields(advice=None)


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
