"""`links --watch` where a program reads."""

from __future__ import annotations

import http.server
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from agent.cli.links import REFRESH, Selection, statuses_of, watch_links
from agent.cli.remote import Remote
from agent.errors import UsageError
from tests.acceptance.command import COMMAND

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
