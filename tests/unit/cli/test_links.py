"""`links --watch` where a program reads."""

from __future__ import annotations

import http.server
import subprocess
import threading
from collections.abc import Iterator

import pytest

from tests.acceptance.command import COMMAND


class NoLinks(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[]")


@pytest.fixture
def agent() -> Iterator[str]:
    """The address of what answers as an agent without links does."""
    with http.server.HTTPServer(("127.0.0.1", 0), NoLinks) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
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
