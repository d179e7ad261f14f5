"""Messages that neither the downstream nor the quarantine can take wait and are shown, and what follows flows on."""

from __future__ import annotations

import random
from typing import Any

from aio_pika.abc import HeadersType

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import CHANGED, Agent
from tests.integration.federation.sites import Site, policies
from tests.integration.federation.test_api import ask
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

FRAME = 131_072
UNFIT = 12
# Fills a frame, so that the entry of the link makes it too large, as do those of the quarantine; nothing compresses it.
LARGE: HeadersType = {"x": bytearray(random.Random(1).randbytes(FRAME - 100))}


KINDS = ("classic", "quorum")


def shown(agent: Agent, kind: str) -> dict[str, Any]:
    [found] = [each for each in ask(agent, "/api/links") if each["upstream"] == kind]
    return dict(found)


def by(kind: str, numbers: list[str]) -> list[str]:
    return [f"{kind} {number}" for number in numbers]


def check_came(here: Site, numbers: list[str]) -> None:
    """By each link once, in order."""
    came = here.take(len(KINDS) * len(numbers))
    for kind in KINDS:
        assert [each for each in came if each.startswith(kind)] == by(kind, numbers)


def test_more_of_them_than_the_prefetch_stop_nothing(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange().queue("k")
    upstreams = {kind: {"uri": there.uri, "exchange": kind, "prefetch-count": 5, "queue-type": kind} for kind in KINDS}
    agent = agent_of(here.node)
    section = {"upstreams": upstreams, "policies": policies()}
    agent.write({here.vhost: section}, agent=agent.settings(**{"stall-after": 2})).start()
    agent.wait_running(2)
    for kind in KINDS:
        there.wait_bound("k", exchange=kind)
        there.publish(numbered(UNFIT), exchange=kind, headers=LARGE)
        there.publish(by(kind, numbered(50)), exchange=kind)
    check_came(here, numbered(50))

    report = (
        f"{UNFIT} messages can't be published downstream: {UNFIT} with headers larger than a frame there (up to 131"
    )
    for kind in KINDS:
        eventually(lambda kind=kind: shown(agent, kind)["status"] == "stalled", what="nothing else waits")  # type: ignore[misc]
        found = shown(agent, kind)
        error = found["error"]
        assert error.startswith(report) and f" bytes, where {FRAME} fit); " in error
        assert error.endswith(f"'federation-agent: quarantine': its properties fit into no frame of {FRAME} bytes")
        assert found["quarantined"] == 0
        assert found["prefetch"] > UNFIT
        there.publish(by(kind, numbered(5, start=50)), exchange=kind)
    check_came(here, numbered(5, start=50))
    assert not [each for each in agent.logged(CHANGED) if each["status"] == "backoff"]
    assert agent.terminate() == 0
