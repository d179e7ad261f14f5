"""`bundle` of an agent that doesn't answer: that is a reason for a report, too."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from agent.cli.bundle import write_bundle
from agent.cli.remote import Remote


def test_what_can_not_be_had_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "agent.yml"
    config.write_text("upstreams: {dc1: {uri: [}")
    path = write_bundle(Remote("http://127.0.0.1:1", None), tmp_path / "fault.tar.gz", config)
    with tarfile.open(path) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert names == {
        "versions.json",
        *(f"{name}.json.missing" for name in ("overview", "causes", "links", "transitions")),
        "metrics.txt.missing",
        "configuration.yml.missing",
    }
    assert path.stat().st_mode & 0o777 == 0o600
    assert "without links.json: agent http://127.0.0.1:1: connection refused" in capsys.readouterr().err
