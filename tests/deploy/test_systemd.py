"""The service's unit, judged by systemd itself."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.acceptance.command import COMMAND
from tests.deploy.prometheus import ROOT

UNIT: Final = ROOT / "deploy/systemd/federation-agent.service"
MOST_EXPOSED: Final = 2.0

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")


def systemd_analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text().replace("/usr/local/lib/federation-agent/bin/federation-agent", COMMAND))
    done = systemd_analyze("verify", "--man=no", here)
    assert (done.returncode, [line for line in done.stderr.splitlines() if UNIT.name in line]) == (0, []), done.stderr


def test_the_service_is_let_do_little() -> None:
    done = systemd_analyze("security", "--offline=true", UNIT)
    found = re.search(r"exposure level for .*: ([\d.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= MOST_EXPOSED


def test_what_process_metrics_are_read_from_is_seen() -> None:
    assert "ProcSubset=pid" not in UNIT.read_text().splitlines()  # `process_start_time_seconds` needs /proc/stat
