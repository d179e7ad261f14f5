"""`scripts/audit`: locked versions against a list of advisories, without a network."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def audit(*arguments: Path | str, osv: str = "http://127.0.0.1:1") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/audit"), *map(str, arguments)]
    environment = os.environ | {"OSV_URL": osv, "no_proxy": "127.0.0.1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@contextmanager
def osv_that_says(results: Any) -> Iterator[tuple[str, list[Any]]]:
    """Its address, and what it was asked."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"results": results}).encode())

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def advisories(path: Path, affected: str | list[str], *, checked: str | None = "2999-01-01") -> Path:
    entry = {"id": "CVE-2000-1", "package": "Some.Thing", "affected": affected}
    path.write_text(json.dumps({"checked": checked, "advisories": [entry]}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("affected", "status"), [("<2", 1), (["<1", ">=1.4,<1.6"], 1), ("<1.5", 0), (">1.5", 0), ("==1.5.*", 1)]
)
def test_a_locked_version_that_is_affected_fails(tmp_path: Path, affected: str | list[str], status: int) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("some-thing==1.5 ; python_version < '4' \\\n    --hash=sha256:00\nother==1\n", encoding="utf-8")
    done = audit(advisories(tmp_path / "list", affected), lock)
    assert done.returncode == status
    assert ("some-thing 1.5: CVE-2000-1 affects" in done.stderr) is bool(status)


@pytest.mark.parametrize(
    ("checked", "warning"),
    [("2020-01-01", "WARNING: the list is "), (None, "WARNING: the list was never compared"), ("2999-01-01", "")],
)
def test_a_list_in_doubt_is_reported_and_fails_nothing(tmp_path: Path, checked: str | None, warning: str) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("some-thing==1.5\n", encoding="utf-8")
    done = audit(advisories(tmp_path / "list", "<1", checked=checked), lock)
    assert done.returncode == 0
    assert warning in done.stderr
    assert ("could not be checked here" in done.stderr) is bool(warning)


def test_what_is_locked_here_is_not_affected() -> None:
    done = audit()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("audit: ")


def test_lint_audits() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "scripts/audit" in makefile.partition("\nlint:")[2].partition("\n\n")[0]


def test_the_list_is_renewed_from_osv(tmp_path: Path) -> None:
    lock, known = tmp_path / "requirements.lock", advisories(tmp_path / "list", "<1", checked=None)
    lock.write_text("some-thing==1.5\nother==1\n", encoding="utf-8")
    with osv_that_says([{}, {"vulns": [{"id": "GHSA-1"}, {"id": "CVE-2000-1"}]}]) as (osv, asked):
        done = audit("--renew", known, lock, osv=osv)
    assert done.returncode == 1
    assert "some-thing 1.5: GHSA-1 affects ==1.5" in done.stderr
    names = [(query["package"]["name"], query["version"]) for query in asked[0]["queries"]]
    assert names == [("other", "1"), ("some-thing", "1.5")]
    written = json.loads(known.read_text())
    assert written["checked"] is not None
    assert [each["id"] for each in written["advisories"]] == ["CVE-2000-1", "GHSA-1"]
    assert audit(known, lock).returncode == 1  # without a network from now on


@pytest.mark.parametrize("results", [None, [], [{}], "xy"])
def test_a_list_that_can_t_be_renewed_stays(tmp_path: Path, results: Any) -> None:
    lock, known = tmp_path / "requirements.lock", advisories(tmp_path / "list", "<1", checked=None)
    lock.write_text("some-thing==1.5\nother==1\n", encoding="utf-8")
    before = known.read_text()
    with osv_that_says(results) as (osv, _):
        done = audit("--renew", known, lock, osv=osv)
    assert (done.returncode, known.read_text()) == (2, before)
    assert "the list is as it was" in done.stderr


def test_a_list_stays_where_nobody_answers(tmp_path: Path) -> None:
    lock, known = tmp_path / "requirements.lock", advisories(tmp_path / "list", "<1", checked=None)
    lock.write_text("some-thing==1.5\n", encoding="utf-8")
    before = known.read_text()
    assert (audit("--renew", known, lock).returncode, known.read_text()) == (2, before)
