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


def test_one_of_a_kind_is_singular(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["topology", write(tmp_path, "a", ["a"])])
    assert capsys.readouterr().out.startswith("1 exchange, 1 link\n")


def beside(directory: Path, *, max_hops: int = 1, downstream: str = "amqp://127.0.0.1:5672") -> list[str]:
    """A ring of three, each as docs/start.md shows it: the broker's loopback address, and no group."""
    paths = [directory / f"{here}.yaml" for here in ("dc1", "dc2", "dc3")]
    for path, there in zip(paths, ("dc2", "dc3", "dc1"), strict=True):
        document = {
            "downstream": {"uri": downstream},
            "definitions": {"management": False},
            "upstreams": {"origin": {"uri": f"amqp://rabbit.{there}.example", "max-hops": max_hops}},
            "policies": {
                "p": {"pattern": "^orders", "apply-to": "exchanges", "definition": {"federation-upstream": "origin"}}
            },
        }
        path.write_text(yaml.safe_dump(document))
    return [str(path) for path in paths]


@pytest.mark.parametrize("downstream", ["amqp://127.0.0.1:5672", "amqp://localhost", "amqp://rabbitmq"])
@pytest.mark.parametrize("named", ["{}", "{}.yaml"])
def test_a_ring_beside_loopback_addresses_is_not_called_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], downstream: str, named: str
) -> None:
    files = beside(tmp_path, downstream=downstream)
    assert run(["topology", *files]) == 4
    said = capsys.readouterr()
    assert "right" not in said.out
    assert "undecided: rabbit.dc1.example:5672 may be another address of dc1 or dc2" in said.out
    assert "--address dc1=HOST:PORT --address dc2=HOST:PORT --address dc3=HOST:PORT" in said.err
    assert "each counts as one for a cluster of its own, called by its file" in said.err
    given = [f"--address={named.format(each)}=rabbit.{each}.example" for each in ("dc1", "dc2", "dc3")]
    assert run(["topology", *files, *given[:2]]) == 4
    assert "undecided: rabbit.dc3.example:5672 may be another address of dc3" in capsys.readouterr().out
    assert run(["topology", *files, *given]) == 4
    assert "published at dc1 ordersexample: once at dc3 ordersexample; never at dc2" in capsys.readouterr().out
    assert run(["topology", *beside(tmp_path, max_hops=2, downstream=downstream), *given]) == 0
    assert "right: every message arrives once" in capsys.readouterr().out


def test_groups_alone_do_not_tell_whose_an_address_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [write(tmp_path, here, [up], at="amqp://localhost") for here, up in (("a", "b"), ("b", "c"), ("c", "a"))]
    assert run(["topology", *files, "--format", "json"]) == 4
    found = json.loads(capsys.readouterr().out)
    assert (found["right"], found["decided"], found["parts"]) == (False, False, [])
    assert {"address": "c.example:5672", "upstream_of": ["b"], "may_be": ["a", "c"]} in found["unknown_upstreams"]


def test_names_that_no_upstream_uses_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [write(tmp_path, "a", ["root"]), write(tmp_path, "b", ["a"])]
    assert run(["topology", *files]) == 4
    assert "no file's downstream is known as root.example:5672, an upstream of a" in capsys.readouterr().out
    ring_inside = [write(tmp_path, here, [up], at=f"amqp://{here}.inside") for here, up in (("a", "b"), ("b", "a"))]
    assert run(["topology", *ring_inside]) == 4
    assert "undecided: a.example:5672 may be another address of a" in capsys.readouterr().out


def test_likely_replicas_are_one_cluster_unless_it_matters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replicas = [beside(tmp_path, downstream="amqp://rabbitmq")[0], str(tmp_path / "replica.yaml")]
    Path(replicas[1]).write_text(Path(replicas[0]).read_text())
    assert run(["topology", *replicas]) == 4
    assert "count as agents of one cluster, rabbitmq:5672, but may be of several" in capsys.readouterr().err
    assert run(["topology", *replicas, "--address", "replica=rabbit.dc9.example"]) == 2
    assert run(["topology", *replicas, "--address", "rabbitmq:5672=rabbit.dc9.example"]) == 0


def test_a_group_that_was_copied_with_the_file_is_not_called_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = beside(tmp_path)
    for file in files:
        Path(file).write_text("agent: {group: dc2}\n" + Path(file).read_text())
    assert run(["topology", *files]) == 4
    said = capsys.readouterr()
    assert "right" not in said.out
    assert "count as agents of one cluster, dc2, but may be of several" in said.err


def test_one_address_is_not_given_to_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [f"--address={each}=rabbit.example" for each in ("dc1", "dc2")]
    assert run(["topology", *beside(tmp_path), *given]) == 2
    assert "dc1 and dc2 are both rabbit.example:5672" in capsys.readouterr().err


def test_a_wrong_address_makes_a_link_to_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ups = {"dc1": "dc2", "dc2": "dc3", "dc3": "dc1"}
    given = [f"--address={here}=rabbit.{up}.example" for here, up in ups.items()]
    assert run(["topology", *beside(tmp_path), *given]) == 4
    said = capsys.readouterr().out
    assert "the link dc1 ordersexample → dc1 ordersexample is from an exchange to itself" in said
    assert "right" not in said


def test_a_ring_in_both_directions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = "abcdef"
    files = [write(tmp_path, here, [names[(at + 1) % 6], names[at - 1]], max_hops=3) for at, here in enumerate(names)]
    assert run(["topology", *files]) == 4
    said = capsys.readouterr().out
    assert "no max-hops for all links brings every message once" in said
    assert "use one direction only, a ordersexample → b ordersexample → c" in said
    assert "and set max-hops to 5 or more: messages arrive once" in said
    run(["topology", *files, "--format", "json"])
    [part] = json.loads(capsys.readouterr().out)["parts"]
    assert part["fewer_links"]["fitting_max_hops"] == [5, 6]
    assert len(part["fewer_links"]["remove"]) == len(part["fewer_links"]["one_way_ring"]) == 6


@pytest.mark.parametrize("address", ["nowhere", "=host", "unknown=host"])
def test_an_address_that_means_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], address: str) -> None:
    assert run(["topology", *ring(tmp_path, 1), "--address", address]) == 2
    assert "--address" in capsys.readouterr().err


def test_files_without_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topology", write(tmp_path, "a", [])]) == 2
    assert "--exchange NAME" in capsys.readouterr().err
