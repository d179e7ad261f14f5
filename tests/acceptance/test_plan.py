"""What `plan` prints, for people and for programs."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.acceptance.command import federation_agent, on_terminal, printing_to
from tests.lab.node import Node

KEYS = 12


@pytest.fixture
def folder(tmp_path: Path, broker: Node, second_broker: Node, vhost: str) -> Iterator[Path]:
    """One link that runs with many bindings, one that is invalid, one exchange to declare, and a warning."""
    broker.admin.exchange(vhost, "x")
    broker.admin.queue(vhost, "q")
    for number in range(KEYS):
        broker.admin.bind(vhost, "x", "q", f"key.{number:02}")
    document = {
        "agent": {"http": {"listen": "127.0.0.1:1"}},
        "downstream": {"uri": f"amqp://127.0.0.1:{broker.amqp_port}", "management": broker.management_uri()},
        "vhosts": {
            vhost: {
                "upstreams": {
                    "good": {"uri": second_broker.uri(vhost), "ha-policy": "all"},
                    "wrong": {"uri": second_broker.uri("nowhere")},
                },
                "exchanges": {"declared": {"type": "fanout"}},
                "policies": {"all": {"pattern": "^x$", "definition": {"federation-upstream-set": "all"}}},
            }
        },
    }
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(document))
    with second_broker.admin.temporary_vhost(vhost):
        yield tmp_path


def test_text_for_people(folder: Path, broker: Node, second_broker: Node, vhost: str) -> None:
    done = federation_agent("plan", "-c", "agent.yaml", cwd=folder)
    assert done.status == 0
    assert "\033" not in done.out
    assert len(done.errors) == 1
    assert ": warning: ha-policy: no current broker supports" in done.err
    head, agent, declared, *_ = done.out.splitlines()
    assert agent == "agent http://127.0.0.1:1: none answers; this is what an agent does that starts"
    assert head.startswith(f"downstream {broker.management_url}: cluster {broker.cluster_name!r}, RabbitMQ ")
    assert declared.startswith("  + create exchange 'declared': declared in agent.yaml:")
    good, wrong = (line for line in done.out.splitlines() if line.startswith("link "))
    where = f"amqp://127.0.0.1:{second_broker.amqp_port}/{vhost}"
    assert good.endswith(f": exchange 'x' in vhost {vhost!r} from upstream 'good' ({where}): run")
    assert "invalid: upstream wrong 127.0.0.1:" in wrong
    assert "vhost 'nowhere' does not exist" in wrong
    assert done.out.count("  + bind key 'key.") == 10
    assert "+ 2 more bindings (--format json shows all)" in done.out
    assert done.out.splitlines()[-1] == f"links: 1 run, 1 invalid; 5 to create, {KEYS} to bind"


def test_colours_on_a_terminal_only(folder: Path) -> None:
    coloured = on_terminal("plan", "-c", "agent.yaml", cwd=folder)
    assert "\033[32mrun\033[0m" in coloured
    assert "\033[31minvalid\033[0m" in coloured
    assert "\033" not in on_terminal("plan", "-c", "agent.yaml", "--format", "json", cwd=folder)


def test_json_for_programs(folder: Path, broker: Node, second_broker: Node, vhost: str) -> None:
    done = federation_agent("plan", "-c", "agent.yaml", "--format", "json", cwd=folder)
    assert done.status == 0
    told = json.loads(done.out)
    assert set(told) == {"downstream", "agent", "actions", "links", "ended", "endings", "not_run", "problems"}
    assert told["downstream"] | {"version": ""} == {
        "broker": broker.management_url, "cluster": broker.cluster_name, "version": "",
    }  # fmt: skip
    assert [(action["verb"], action["name"], action["vhost"]) for action in told["actions"]] == [
        ("create", "declared", vhost)
    ]
    good, wrong = sorted(told["links"], key=lambda link: str(link["upstream"]))
    where = f"amqp://127.0.0.1:{second_broker.amqp_port}/{vhost}"
    assert {key: good[key] for key in ("kind", "vhost", "name", "upstream", "upstream_name", "uri", "policy")} == {
        "kind": "exchange", "vhost": vhost, "name": "x", "upstream": "good", "upstream_name": "x", "uri": where,
        "policy": "all",
    }  # fmt: skip
    assert len(good["id"]) == 8
    assert (good["outlook"], good["reason"], good["bindings"]) == ("run", "", KEYS)
    assert [action["verb"] for action in good["actions"]] == ["create"] * 3 + ["bind"] * KEYS + ["create"]
    assert (wrong["outlook"], wrong["actions"]) == ("invalid", [])
    [problem] = told["problems"]
    assert problem["place"].startswith("agent.yaml:")
    assert (problem["severity"], problem["message"][:9]) == ("warning", "ha-policy")
    again = federation_agent("plan", "-c", "agent.yaml", "--format", "json", cwd=folder)
    assert again.out == done.out, "a link keeps its id"


def test_a_reader_that_leaves_is_no_news(folder: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = printing_to(write, "plan", "-c", "agent.yaml", cwd=folder)
    finally:
        os.close(write)
    assert done.status == 0
    assert len(done.errors) == 1
