"""Agents of one group, and what they show of who runs which link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.core.model import LinkKind
from agent.core.replicas.slots import SLOTS, slot_of
from agent.core.rules.names import LinkIds
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, policies, upstreams
from tests.integration.shovels.shoveling import ask, shovel
from tests.lab.waiting import DEADLINE, NeverHappenedError, eventually

STANDSTILL: Final = "the agent stood still"


def federated(here: Site, there: Site, count: int) -> dict[str, Any]:
    """The section of a vhost with so many exchange links, and what they need downstream; each in a slot of its own, so
    that they can be shared evenly."""
    by_slot: dict[int, int] = {}
    for number in range(count * SLOTS):
        by_slot.setdefault(slot_of(_link_id(here.vhost, f"fed.{number}")), number)
    for number in sorted(by_slot.values())[:count]:
        here.exchange(f"fed.{number}").queue("k", name=f"q{number}", exchange=f"fed.{number}")
    return {"upstreams": upstreams(there), "policies": policies()}


def _link_id(vhost: str, exchange: str) -> str:
    return LinkIds().of(LinkKind.EXCHANGE, vhost, exchange, "origin", exchange)


def shoveled(here: Site, there: Site, count: int, **keys: Any) -> dict[str, Any]:
    """The section of a vhost with so many shovels."""
    return {
        "shovels": {
            f"move{number}": shovel(there, here, src_queue=f"src{number}", dest_queue=f"dest{number}", **keys)
            for number in range(count)
        }
    }


def replicas(agent_of: AgentOf, here: Site, section: Mapping[str, Any], count: int, **more: Any) -> list[Agent]:
    """Agents `a`, `b` … of one group with the same links, not started."""
    agents = [agent_of(here.node, **more) for _ in range(count)]
    for agent, name in zip(agents, "abcdef", strict=False):
        agent.write({here.vhost: section}, agent=agent.settings(name=name, group=here.vhost))
    return agents


def links(agent: Agent) -> dict[str, dict[str, Any]]:
    """By their names, as the agent shows them now; none while it doesn't answer."""
    try:
        return {each.get("exchange") or each.get("queue") or each["name"]: each for each in ask(agent, "/api/links")}
    except OSError:
        return {}


def run_by(agent: Agent) -> set[str]:
    return {name for name, link in links(agent).items() if link["status"] == "running"}


def loads(agents: Sequence[Agent]) -> list[int]:
    return [len(run_by(agent)) for agent in agents]


def wait_shared(agents: Sequence[Agent], count: int, deadline: float = DEADLINE) -> None:
    """Until each link runs once, and no agent runs two more than another. Links of one slot move together; which ones
    they are is chance, as the names of vhosts are."""

    def shared() -> bool:
        running = Counter(name for agent in agents for name in run_by(agent))
        found = loads(agents)
        largest = max(Counter(slot_of(link["id"]) for link in links(agents[0]).values()).values(), default=1)
        return running == Counter(set(running)) and sum(found) == count and max(found) - min(found) <= largest

    try:
        eventually(shared, deadline, what=f"{count} links shared evenly")
    except NeverHappenedError as error:
        shown = [{name: (each["status"], each["error"]) for name, each in links(agent).items()} for agent in agents]
        raise AssertionError(f"{error}; the agents show {shown}") from error


def stood_still(agents: Sequence[Agent]) -> bool:
    """A busy machine gave one of them no CPU for so long that the others took its links over."""
    return any(agent.logged(STANDSTILL) for agent in agents)


def wait_all_run(agents: Sequence[Agent], count: int, deadline: float = DEADLINE) -> None:
    eventually(lambda: sum(loads(agents)) == count, deadline, what=f"{count} links run")
