"""`topology` as a command: text, data, drawings, exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from agent.cli.main import run


def write(directory: Path, cluster: str, upstreams: list[str], *, max_hops: int = 1, at: str = "") -> str:
    document = {
        "agent": {"group": cluster},
        "downstream": {"uri": at or f"amqp://{cluster}.example"},
        "definitions": {"management": False},
        "upstreams": {up: {"uri": f"amqp://{up}.example", "max-hops": max_hops} for up in upstreams},
        "policies": {
            "p": {"pattern": "^orders", "apply-to": "exchanges", "definition": {"federation-upstream-set": "all"}}
        },
    }
    path = directory / f"{cluster}.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def ring(directory: Path, max_hops: int) -> list[str]:
    return [write(directory, here, [there], max_hops=max_hops) for here, there in (("a", "b"), ("b", "c"), ("c", "a"))]


def test_too_few_hops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topology", *ring(tmp_path, 1)]) == 4
    said = capsys.readouterr().out
    assert "3 exchanges, 3 links" in said
    assert "published at a ordersexample: once at c ordersexample; never at b ordersexample" in said
    assert "max-hops too small: 3 pairs of exchanges get nothing" in said
    assert "set max-hops to 2 or more for all links" in said


def test_a_ring_that_is_right_but_breaks_with_one_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topology", *ring(tmp_path, 2)]) == 0
    said = capsys.readouterr().out
    assert "right: every message arrives once" in said
    assert "a ring in one direction: if any one of its links is down" in said


def test_too_many_hops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [write(tmp_path, here, [each for each in "abc" if each != here], max_hops=2) for here in "abc"]
    assert run(["topology", *files]) == 4
    said = capsys.readouterr().out
    assert "twice at b ordersexample, c ordersexample" in said
    assert "max-hops too large: 6 pairs of exchanges get messages more than once" in said
    assert "set max-hops to 1 for all links" in said


def test_ways_of_different_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [write(tmp_path, "b", ["a"]), write(tmp_path, "c", ["a"]), write(tmp_path, "d", ["b", "c"])]
    assert run(["topology", *files]) == 4
    said = capsys.readouterr().out
    assert "no max-hops for all links brings every message once" in said
    assert "set max-hops to 1 for the link b ordersexample → d ordersexample, to 2 for all others" in said


def test_data_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topology", *ring(tmp_path, 1), "--format", "json"]) == 4
    found = json.loads(capsys.readouterr().out)
    [part] = found["parts"]
    assert part["fitting_max_hops"] == [2, 3]
    assert {"copies": 0, "from": _node("a"), "to": _node("b")} in part["arrivals"]
    assert not found["right"]


def _node(cluster: str) -> dict[str, str]:
    return {"cluster": cluster, "vhost": "/", "exchange": "ordersexample"}


@pytest.mark.parametrize(("format_", "start"), [("dot", "digraph"), ("svg", "<svg ")])
def test_drawings(tmp_path: Path, capsys: pytest.CaptureFixture[str], format_: str, start: str) -> None:
    assert run(["topology", *ring(tmp_path, 2), "--format", format_]) == 0
    assert capsys.readouterr().out.startswith(start)


def test_a_downstream_that_others_know_by_another_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [write(tmp_path, "a", ["b"], at="amqp://localhost"), write(tmp_path, "b", ["a"], at="amqp://localhost")]
    run(["topology", *files])
    assert "give the address that others use, as --address a=HOST:PORT" in capsys.readouterr().err
    assert run(["topology", *files, "--address", "a=a.example", "--address", "b=b.example:5672"]) == 0
    said = capsys.readouterr()
    assert "2 exchanges, 2 links" in said.out
    assert said.err == ""


@pytest.mark.parametrize("address", ["nowhere", "=host", "unknown=host"])
def test_an_address_that_means_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], address: str) -> None:
    assert run(["topology", *ring(tmp_path, 1), "--address", address]) == 2
    assert "--address" in capsys.readouterr().err


def test_files_without_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topology", write(tmp_path, "a", [])]) == 2
    assert "--exchange NAME" in capsys.readouterr().err
