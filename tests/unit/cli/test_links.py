"""`links --watch` where a program reads."""

from __future__ import annotations

import http.server
import subprocess
import threading
from collections.abc import Iterator

import pytest

from tests.acceptance.command import COMMAND


class NoLinks(http.server.BaseHTTPRequestHandler):
    overview = b"{}"

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.overview if self.path == "/api/overview" else b"[]")


class Unread(NoLinks):
    overview = b'{"unread": "login refused"}'


@pytest.fixture
def agent() -> Iterator[str]:
    """The address of what answers as an agent without links does."""
    with http.server.HTTPServer(("127.0.0.1", 0), NoLinks) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class AwayOnce(http.server.BaseHTTPRequestHandler):
    """Away for the third and the fourth question."""

    asked = 0

    def do_GET(self) -> None:
        AwayOnce.asked += 1
        self.send_response(503 if AwayOnce.asked in {3, 4} else 200)
        self.end_headers()
        self.wfile.write(b"{}" if self.path == "/api/overview" else b"[]")


def test_watching_goes_on_where_the_agent_was_away() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), AwayOnce) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        agent = f"http://127.0.0.1:{server.server_port}"
        watching = [COMMAND, "links", "--watch", "--format", "json", "--url", agent]
        with subprocess.Popen(watching, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout
            assert process.stderr
            try:
                assert [process.stdout.readline() for _ in range(2)] == [b"[]\n"] * 2
            finally:
                process.kill()
            assert process.stderr.read().decode().splitlines() == [
                f"agent {agent}: the response is not an agent's: check the address"
            ]
        server.shutdown()


def test_watching_says_once_that_the_agent_cannot_read_its_broker() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Unread) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        agent = f"http://127.0.0.1:{server.server_port}"
        watching = [COMMAND, "links", "--watch", "--url", agent]
        with subprocess.Popen(watching, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout
            assert process.stderr
            try:
                assert [process.stdout.readline() for _ in range(3)] == [b"no links\n"] * 3
            finally:
                process.kill()
            assert process.stderr.read().decode().splitlines() == [
                f"agent {agent}: it can't read its broker, so this may be old: login refused"
            ]
        server.shutdown()


@pytest.mark.parametrize("form", ["text", "json"])
def test_watching_ends_once_nobody_reads(agent: str, form: str) -> None:
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
