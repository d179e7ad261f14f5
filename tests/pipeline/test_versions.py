"""Readers see all of one run, wherever a run is killed; needs no Spark."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.pipeline.versions import Versions

TABLES = ("intervals", "slo")
NAMES = (*TABLES, "report.html", "availability.csv")
STEPS = (  # (owner, name): each changes something on the disk
    (Path, "rename"), (Path, "replace"), (Path, "symlink_to"), (Path, "unlink"), (Path, "mkdir"), (Path, "write_text"),
    (os, "link"), (shutil, "rmtree"),
)  # fmt: skip
MOST_STEPS = 200


class Killed(BaseException):
    """As SIGKILL: nothing catches it."""


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """`kill_at(n)`: the process ends before its step number n; a negative one lets it live."""
    left = [-1]

    def dying(step: Callable[..., Any]) -> Callable[..., Any]:
        def made(*given: Any, **options: Any) -> Any:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return step(*given, **options)

        return made

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, dying(getattr(owner, name)))
    yield lambda number: left.__setitem__(0, number)
    left[0] = -1


def run(output: Path, label: str, *, keep: int = 2, csv: bool = False) -> Versions:
    """As a report does, in which one day of each table is another."""
    made = Versions(output, NAMES, keep=keep)
    made.open()
    write(output / made.begin(TABLES), label, csv=csv)
    made.show()
    return made


def write(directory: Path, label: str, *, csv: bool = False) -> None:
    for table in TABLES:
        for day in ("date=2026-01-01", "date=2026-01-02"):
            path = directory / table / day
            path.mkdir(parents=True, exist_ok=True)
            if day.endswith("1") and list(path.iterdir()):
                continue  # this day doesn't change
            for old in path.iterdir():
                old.unlink()
            (path / f"part-{label}").write_text(label)
    for name in ("report.html", *(["availability.csv"] if csv else [])):
        (directory / name).write_text(label)


def seen(output: Path) -> set[str]:
    """Of which runs a reader of the contract's paths sees something that changes with each."""
    days = [part for table in TABLES for part in (output / table / "date=2026-01-02").glob("part-*")]
    pages = [output / name for name in ("report.html", "availability.csv")]
    return {path.read_text() for path in (*days, *pages) if path.exists()}


def is_whole(output: Path) -> bool:
    tables = all(list((output / table / day).glob("part-*")) for table in TABLES for day in DAYS)
    return tables and (output / "report.html").exists()


DAYS = ("date=2026-01-01", "date=2026-01-02")


def test_paths_of_the_contract_lead_to_the_last_run(tmp_path: Path) -> None:
    run(tmp_path, "a", csv=True)
    made = run(tmp_path, "b")
    assert seen(tmp_path) == {"b"}, "the sheet of the former run is gone"
    assert not (tmp_path / "availability.csv").is_symlink()
    assert is_whole(tmp_path)
    assert json.loads((tmp_path / "current.json").read_text()) == {"run": made.run, "path": f"_versions/{made.run}"}
    assert (tmp_path / "current").resolve() == tmp_path / "_versions" / made.run


def test_what_does_not_change_is_not_copied(tmp_path: Path) -> None:
    run(tmp_path, "a")
    before = next((tmp_path / "intervals/date=2026-01-01").iterdir()).stat().st_ino
    run(tmp_path, "b")
    assert next((tmp_path / "intervals/date=2026-01-01").iterdir()).stat().st_ino == before


def test_who_reads_meanwhile_can_go_on(tmp_path: Path) -> None:
    run(tmp_path, "a")
    reading = (tmp_path / "intervals").resolve()
    run(tmp_path, "b")
    assert next((reading / "date=2026-01-02").iterdir()).read_text() == "a"


@pytest.mark.parametrize("keep", [1, 3])
def test_so_many_are_kept(tmp_path: Path, keep: int) -> None:
    for number in range(5):
        run(tmp_path, str(number), keep=keep)
    kept = sorted(path.name.partition("-")[0] for path in (tmp_path / "_versions").iterdir())
    assert kept == [f"{number:08d}" for number in range(6 - keep, 6)]


def test_an_output_without_versions_becomes_one_with_them(tmp_path: Path) -> None:
    write(tmp_path, "old")
    run(tmp_path, "new")
    assert seen(tmp_path) == {"new"}
    assert (tmp_path / "intervals").is_symlink()
    assert len(list((tmp_path / "_versions").iterdir())) == 2


def test_without_hard_links_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no hard links")

    monkeypatch.setattr(os, "link", refuse)
    run(tmp_path, "a")
    run(tmp_path, "b")
    assert is_whole(tmp_path)


@pytest.mark.parametrize("before", ["nothing", "a version", "an old output"])
def test_killed_anywhere(tmp_path: Path, kill_at: Callable[[int], None], before: str) -> None:
    for number in range(MOST_STEPS):
        output = tmp_path / str(number)
        output.mkdir()
        if before == "a version":
            run(output, "old")
        elif before == "an old output":
            write(output, "old")
        kill_at(number)
        try:
            run(output, "new")
        except Killed:
            kill_at(-1)
            found = seen(output)
            assert found <= {"old"} or found == {"new"}, f"killed before step {number}"
            if before == "a version" or found == {"new"}:
                assert is_whole(output), f"killed before step {number}"
            run(output, "next", keep=1)
            assert seen(output) == {"next"}
            assert is_whole(output)
            assert len(list((output / "_versions").iterdir())) == 1, "nothing is left of the killed run"
            assert not list(output.glob(".*new"))
        else:
            kill_at(-1)
            assert number > 5
            return
    pytest.fail(f"a run has over {MOST_STEPS} steps")
