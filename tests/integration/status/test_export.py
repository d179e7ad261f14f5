"""What an agent writes down between real brokers: cuts, crashes, its end, and a disk that is gone for a while."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, X, federated
from tests.integration.status.asking import metric
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.waiting import eventually

DROPPED: Final = "federation_agent_export_dropped_events_total"
Event = dict[str, Any]


def exporting(agent: Agent, definition: dict[str, Any], vhost: str) -> Path:
    """Writes the agent's configuration; answers where it exports to."""
    about = {
        "name": "dc/1",
        "http": {"listen": f"127.0.0.1:{agent.port}"},
        "status-export": {"directory": "status", "sample-interval": 0.5, "rotate": 1},
    }
    agent.write({vhost: definition}, agent=about)
    return agent.directory / "status"


def runs(directory: Path) -> list[list[Event]]:
    """The events of each run, in the order in which they were written."""
    files = sorted(directory.glob("date=*/dc%2F1-*.jsonl"), key=lambda path: path.name)
    return [
        [json.loads(line) for path in of_run for line in path.read_bytes().splitlines()]
        for _, of_run in groupby(files, key=lambda path: path.name.rsplit("-", 1)[0])
    ]


def of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["type"] == kind]


def at(event: Event) -> float:
    return datetime.fromisoformat(event["ts"]).timestamp()


def test_cuts_a_crash_and_a_stop_are_in_the_files(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: Callable[[Node], Proxy]
) -> None:
    here.exchange().queue("k")
    network = proxy_to(there.node)
    definition = federated(there)
    definition["upstreams"]["origin"]["uri"] = there.node.uri(there.vhost, port=network.port)
    agent = agent_of(here.node)
    directory = exporting(agent, definition, here.vhost)
    agent.start().wait_for("running", link := (here.vhost, X, "origin"))
    there.publish(["1", "2", "3"])
    assert here.take(3) == ["1", "2", "3"]
    sampled = eventually(lambda: samples_of(directory, forwarded=3), what="a sample tells of three messages")
    cut_at = time.time()
    network.refuse()
    network.cut()
    agent.wait_for("backoff", link)
    seen_at = time.time()
    network.accept()
    agent.wait_for("running", link)
    eventually(lambda: len(samples_of(directory, reconnects=1)) > 1, what="a sample tells of the cut")
    eventually(lambda: opened(directory) == 2, what="it is written that it runs again: a kill takes what isn't")
    agent.kill()
    agent.start()
    eventually(lambda: agent.history(*link).count("running") == 3, what="the link runs again")
    assert agent.terminate() == 0

    first, second = runs(directory)
    assert list(directory.rglob("*.part")) == []
    for run in (first, second):
        assert [event["seq"] for event in run] == list(range(1, len(run) + 1))
    told = [(event["previous"], event["status"], event["reason"]) for event in of(first, "transition")]
    assert told[:3] == [
        (None, "starting", "appeared"),
        ("starting", "running", "opened"),
        ("running", "backoff", "upstream_lost"),
    ]
    assert told[-1][1:] == ("running", "opened")
    broken = of(first, "transition")[2]
    assert cut_at <= at(broken) <= seen_at
    assert broken["error"].startswith("upstream origin ")
    assert [event["status"] for event in of(first, "agent")][:2] == ["started", "heartbeat"]
    assert {event["status"] for event in of(first, "agent")} == {"started", "heartbeat"}
    assert [(event["reason"], event["forwarded"]) for event in of(second, "transition")] == [
        ("appeared", 0),
        ("opened", 0),
        ("stopped", 0),
    ]
    assert [event["status"] for event in (second[0], second[-1])] == ["started", "stopped"]
    assert [(event["type"], event["status"]) for event in second[-2:-1]] == [("sample", "stopping")]
    check_sample(sampled[0], agent.lab.group, here, there)
    assert "guest" not in "".join(path.read_text() for path in directory.rglob("*.jsonl"))


def opened(directory: Path) -> int:
    """How often the last run has written that a link was opened."""
    return sum(event["reason"] == "opened" for event in of(runs(directory)[-1], "transition"))


def samples_of(directory: Path, **values: object) -> list[Event]:
    found = [event for run in runs(directory) for event in of(run, "sample")]
    return [event for event in found if all(event[name] == value for name, value in values.items())]


def check_sample(event: Event, group: str, here: Site, there: Site) -> None:
    assert (event["agent"], event["group"], event["cluster"]) == ("dc/1", group, here.node.cluster_name)
    assert (event["kind"], event["vhost"], event["name"]) == ("exchange", here.vhost, X)
    assert (event["upstream"], event["upstream_name"]) == ("origin", X)
    assert (event["upstream_cluster"], event["bindings"]) == (there.node.cluster_name, 1)
    assert event["uri"].startswith("amqp://127.0.0.1:")
    assert event["transfer"]["count"][-1] == 3
    assert datetime.fromtimestamp(at(event), UTC).utcoffset() is not None


def test_messages_flow_while_the_disk_is_gone(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange().queue("k")
    agent = agent_of(here.node)
    directory = exporting(agent, federated(there), here.vhost)
    agent.start().wait_for("running", (here.vhost, X, "origin"))
    directory.rename(agent.directory / "away")  # what is written meanwhile would keep it from being removed
    directory.write_text("in the way")
    eventually(lambda: (metric(agent, DROPPED) or 0) > 0, what="events are dropped")
    there.publish(["1", "2"])
    assert here.take(2) == ["1", "2"]
    directory.unlink()
    eventually(lambda: samples_of(directory, forwarded=2), what="events are kept again")
    assert agent.terminate() == 0
    assert len(agent.logged("status export: events are dropped")) == 1
    assert len(agent.logged("status export: events are kept again")) == 1


def test_a_directory_that_can_not_be_written_ends_the_agent(agent_of: AgentOf, here: Site, there: Site) -> None:
    agent = agent_of(here.node)
    exporting(agent, federated(there), here.vhost).write_text("in the way")
    assert agent.start().wait() == 3
    assert f"agent.status-export.directory {agent.directory}/status: " in agent.log.read_text()
