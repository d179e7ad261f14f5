"""A link that falls behind and catches up: its lines and the report say what the API said."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pytest

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, federated
from tests.integration.federation.test_failures import link
from tests.integration.quarantine.test_refused import FULL, two_queues
from tests.integration.status.asking import link_when
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

HELD: Final = 20
LIMIT: Final = 5
INTERVAL: Final = 1.0
STOOD_STILL: Final = 20.0  # at most, between two lines of an agent that gets no CPU
SAMPLES: Final = 6
"""So many lines, at least, say that the link is too far behind."""
ROUNDED: Final = 0.001  # the API's times


def lines(agent: Agent) -> list[dict[str, Any]]:
    texts = (path.read_bytes().splitlines() for path in (agent.directory / "status").rglob("*.jsonl"))
    found = [json.loads(line) for text in texts for line in text]
    return sorted((one for one in found if one["type"] != "agent"), key=lambda one: str(one["ts"]))


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@dataclass(frozen=True)
class Lagging:
    agent: Agent
    here: Site
    there: Site


@pytest.fixture
def lagging(agent_of: AgentOf, here: Site, there: Site) -> Lagging:
    two_queues(here, there)
    agent = agent_of(here.node)
    about = {
        "group": "lag",
        "http": {"listen": f"127.0.0.1:{agent.port}"},
        "status-export": {"directory": "status", "sample-interval": INTERVAL, "rotate": 1},
    }
    agent.write({here.vhost: federated(there, **{"lag-critical": LIMIT})}, agent=about).start()
    agent.wait_for("running", link(here))
    return Lagging(agent, here, there)


def live(scene: Lagging) -> tuple[float, float]:
    """How long the lag was critical, at least and at most."""
    agent = scene.agent
    eventually(lambda: any(one["lag_is_critical"] is False for one in lines(agent)), what="lines before")

    scene.there.publish(numbered(HELD), "full.a")
    behind = link_when(agent, "that is behind", lambda found: found["critical_since"] is not None)
    assert behind["lag_critical"] == {"seconds": None, "messages": LIMIT}
    since = moment(behind["critical_since"])

    def during(asked: float) -> list[bool | None]:
        """What lines say from then on until the API was asked for what it answered."""
        return [one["lag_is_critical"] for one in lines(agent) if since + ROUNDED < moment(one["ts"]) <= asked]

    still = link_when(
        agent, "that is still behind", lambda found: len(during(moment(found["backlog_last_at"]))) >= SAMPLES
    )
    scene.here.node.admin.delete("policies", scene.here.vhost, f"limit {FULL}")
    well = link_when(agent, "that has caught up", lambda found: found["critical_since"] is None)
    assert still["critical_since"] == behind["critical_since"]
    scene.here.wait_depth(1 + HELD, FULL)
    assert agent.terminate() == 0

    until = moment(well["backlog_last_at"])
    shown = [(moment(one["ts"]), one["lag_is_critical"]) for one in lines(agent)]
    asked = moment(still["backlog_last_at"])
    before = [lag for at, lag in shown if at < since - ROUNDED]
    after = [lag for at, lag in shown if at > until + ROUNDED]
    assert (set(before), set(during(asked)), set(after)) == ({False}, {True}, {False})
    return asked - since - 2 * INTERVAL, until - since + STOOD_STILL


def check(known: tuple[float, float], summary: dict[str, Any]) -> None:
    """None of the other links has a limit."""
    found = summary["lag_critical"]
    assert (found["links"], found["known_links"]) == (1, 1)
    assert known[0] < found["seconds"] < known[1]
