"""Which tests one worker runs together."""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.scheduling import ROWS, unit_of

ROOT = Path(__file__).parents[2]
RECORD = """
import json, os
def test_one(record): pass
def test_two(record): pass
"""
CONFTEST = """
import json, os
from pathlib import Path
import pytest
from tests.scheduling import pytest_xdist_make_scheduler
@pytest.fixture
def record(request):
    line = json.dumps([request.node.nodeid, os.environ["PYTEST_XDIST_WORKER"]])
    with Path(os.environ["RECORD"]).open("a") as file:
        file.write(line + "\\n")
"""


@pytest.mark.parametrize("path", [path for row in ROWS for path in row])
def test_a_row_names_what_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_a_file_outside_of_rows_is_a_unit_of_its_own() -> None:
    assert unit_of("tests/unit/core/test_hops.py::test_it[a::b]") == "tests/unit/core/test_hops.py"


@pytest.mark.thorough
def test_one_worker_runs_all_of_a_row(tmp_path: Path) -> None:
    """With the real pytest and xdist: their hooks and ids change from release to release."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    row = max(ROWS, key=len)
    files = [*(f"{path}/test_a.py" if not path.endswith(".py") else path for path in row), "tests/unit/test_b.py"]
    for file in files:
        made = tmp_path / file
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(RECORD)
    record = tmp_path / "record"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadscope", "--rootdir", str(tmp_path)]
    plugins = ["-p", "no:schemathesis", "-p", "no:cacheprovider", "--import-mode=importlib", "-c", "/dev/null"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "RECORD": str(record)}
    done = subprocess.run(
        [*command, *plugins, *files], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    workers = defaultdict(set)
    for line in record.read_text().splitlines():
        test_id, worker = json.loads(line)
        workers[unit_of(test_id)].add(worker)
    assert {unit: len(of_unit) for unit, of_unit in workers.items()} == {row[0]: 1, "tests/unit/test_b.py": 1}
    assert workers[row[0]] != workers["tests/unit/test_b.py"]
