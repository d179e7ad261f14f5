"""`make demo`, also with `MOVE=1` and `STANDBY=1`: each ends by itself, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.command import ROOT
from tests.lab.lab import Lab

LAB = re.compile(r"^(?P<lab>/\S*/federation-lab-\S+)/\w+\.yaml:$", re.MULTILINE)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("tests.lab.demo", r"[1-9]\d* messages were federated; everything is stopped and removed"),
        ("tests.lab.demo_move", r"at the old broker: 0 messages; at the new one: 500 consumed, 1001 wait"),
        ("tests.lab.demo_standby", r"at the former source: 0 messages; at the new one: 300, each once: True"),
    ],
    ids=["federation", "move", "standby"],
)
def test_a_demo(program: str, said: str, lab: Lab) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", program],
        cwd=ROOT,
        env={**os.environ, **lab.mark, "DEMO_SECONDS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert ran.returncode == 0, ran
    assert re.search(said, ran.stdout), ran
    found = LAB.search(ran.stdout)
    assert found and not Path(found["lab"]).exists()
