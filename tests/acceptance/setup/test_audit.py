"""`scripts/audit`: locked versions against a list of advisories, without a network."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def audit(*arguments: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/audit"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


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
