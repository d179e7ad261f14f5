"""Rules of shovels: headers that are set and removed beside the shovel's own, and limits in messages and bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Self, cast

import pytest

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import links_of, named, running, shovel, shovels
from tests.integration.status.asking import metric
from tests.lab.user_program import depth, messages, numbered
from tests.lab.waiting import DEADLINE, eventually

RATE = 100


@dataclass(frozen=True)
class Look:
    """How many messages were forwarded at some moment between two times."""

    began: float
    forwarded: int
    ended: float

    @classmethod
    def at_once(cls, forwarded: Callable[[], int]) -> Self:
        return cls(time.monotonic(), forwarded(), time.monotonic())


def test_headers_are_set_and_removed(agent_of: AgentOf, here: Site, there: Site) -> None:
    there.queue(name="src").publish(["a"], "src", exchange="", headers={"mine": "yes", "secret": "s", "site": 1})
    there.publish(["b"], "src", exchange="", headers={"x-shovelled": [{"shovelled-by": "earlier"}], "debug-x": 1})
    rules: dict[str, Any] = {"set_headers": {"site": "eu"}, "remove_headers": ["secret", "debug-*"]}
    running(agent_of(here.node), here, shovel(there, here, dest_add_forward_headers=True, **rules))
    first, second = (dict(each.headers) for each in messages(here.uri, "dest", 2))
    assert [len(cast("list[Any]", each.pop("x-shovelled"))) for each in (first, second)] == [1, 2]
    assert (first, second) == ({"mine": "yes", "site": "eu"}, {"site": "eu"})


def test_a_limit_is_kept(agent_of: AgentOf, here: Site, there: Site) -> None:
    """Of messages and of bytes, in the modes with acknowledgements and without."""
    bodies = [number + "x" * 994 for number in numbered(4 * RATE)]
    limits: dict[str, dict[str, int]] = {
        "messages": {"messages": RATE},
        "bytes": {"bytes": 1_000 * RATE, "messages": 10**6},
    }
    defined = {
        f"{mode} {unit}": shovel(
            there, here, src_queue=f"{mode} {unit}", dest_queue=f"{mode} {unit}", ack_mode=mode, rate_limit=limit
        )
        for unit, limit in limits.items()
        for mode in ("on-confirm", "no-ack")
    }
    for name in defined:
        there.queue(name=name).publish(bodies, name, exchange="")
        here.queue(name=name)
    begun = time.monotonic()
    agent = agent_of(here.node).write({here.vhost: {"shovels": defined}}).start()
    agent.wait_running(len(defined))
    for name in defined:
        eventually(lambda name=name: limited(agent, name), what="it is shown")  # type: ignore[misc]
    links, passed = links_of(agent), time.monotonic() - begun
    assert all(links[name]["forwarded"] <= RATE * (passed + 2) for name in defined if "on-confirm" in name)
    for name in sorted(defined, reverse=True):  # those with acknowledgements first
        assert here.take(4 * RATE, queue=name) == bodies
        if "on-confirm" in name:  # without acknowledgements one read may bring all of them
            assert 2 < time.monotonic() - begun < DEADLINE / 2


def limited(agent: Agent, name: str) -> bool:
    """That it is now, or was."""
    link = links_of(agent)[name]
    assert link["status"] == "running"
    return bool(link["limited"] or metric(agent, "federation_agent_link_limited_seconds_total", name=name))


def test_a_number_of_messages_is_moved_at_the_limit_that_comes_meanwhile(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    """The first limit of a shovel connects it again, and what it has moved counts on."""
    there.queue(name="src").publish(numbered(6 * RATE), "src", exchange="")
    definition = shovel(there, here, src_delete_after=4 * RATE, rate_limit={"messages": RATE})
    agent = running(agent_of(here.node), here, definition)
    agent.write({here.vhost: shovels(definition | {"rate-limit": {"messages": 10 * RATE}})})
    eventually(lambda: depth(here.uri, "dest") == 4 * RATE, what="as many as it was to move")
    agent.wait_for("terminated", named(here))
    eventually(lambda: depth(there.uri, "src") == 2 * RATE, what="the others are back")
    assert agent.history(*named(here)).count("running") == 1


@pytest.mark.thorough
def test_limits_are_exact_over_a_minute(agent_of: AgentOf, here: Site, there: Site) -> None:
    limits: dict[str, tuple[int, dict[str, int]]] = {"few": (7, {"messages": 7}), "bytes": (100, {"bytes": 1_000_000})}
    for name, (rate, _) in limits.items():
        there.queue(name=name).publish(["x" * 10_000] * (70 * rate), name, exchange="")
    defined = {
        name: shovel(there, here, src_queue=name, dest_queue=name, rate_limit=limit)
        for name, (_, limit) in limits.items()
    }
    agent = agent_of(here.node).write({here.vhost: {"shovels": defined}}).start()
    agent.wait_running(len(defined))
    time.sleep(3)

    def forwarded(name: str) -> int:
        link = links_of(agent)[name]
        assert link["status"] == "running"
        return int(link["forwarded"])

    looks: dict[str, list[Look]] = {name: [Look.at_once(partial(forwarded, name))] for name in limits}
    for _ in range(6):
        time.sleep(10)
        for name, seen in looks.items():
            seen.append(Look.at_once(partial(forwarded, name)))
    for name, (rate, _) in limits.items():
        judge(looks[name], rate)


def judge(looks: Sequence[Look], rate: int) -> None:
    assert looks[-1].forwarded - looks[0].forwarded <= 1.02 * rate * (looks[-1].ended - looks[0].began)
    # A part of the minute in which the machine stood still says nothing of the limit: one without is enough.
    shares = [
        (after.forwarded - before.forwarded + 1) / (rate * (after.began - before.ended))
        for before, after in pairwise(looks)
    ]
    assert max(shares) >= 0.98, shares
