"""Messages that neither the downstream nor the quarantine can take wait and are shown, and what follows flows on."""

from __future__ import annotations

import random
from typing import Any

import pytest
from aio_pika.abc import HeadersType

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, federated
from tests.integration.federation.test_api import ask
from tests.integration.federation.test_failures import link
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

FRAME = 131_072
UNFIT = 12
# Fills a frame, so that the entry of the link makes it too large, as do those of the quarantine; nothing compresses it.
LARGE: HeadersType = {"x": bytearray(random.Random(1).randbytes(FRAME - 100))}


def only(agent: Agent) -> dict[str, Any]:
    [found] = ask(agent, "/api/links")
    return dict(found)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_more_of_them_than_the_prefetch_stop_nothing(agent_of: AgentOf, here: Site, there: Site, kind: str) -> None:
    here.exchange().queue("k")
    definition = federated(there, **{"prefetch-count": 5, "queue-type": kind})
    listen = {"http": {"listen": ""}, "stall-after": 2}
    agent = agent_of(here.node)
    listen["http"] = {"listen": f"127.0.0.1:{agent.port}"}
    agent.write({here.vhost: definition}, agent=listen).start()
    agent.wait_for("running", link(here))
    there.publish(numbered(UNFIT), headers=LARGE)
    there.publish(numbered(200))
    assert here.take(200) == numbered(200)

    report = (
        f"{UNFIT} messages can't be published downstream: {UNFIT} with headers larger than a frame there (up to 131"
    )
    eventually(lambda: only(agent)["status"] == "stalled", what="nothing else waits")
    shown = only(agent)
    assert shown["error"].startswith(report) and f" bytes, where {FRAME} fit); " in shown["error"]
    assert shown["error"].endswith(f"'federation-agent: quarantine': its properties fit into no frame of {FRAME} bytes")
    assert shown["quarantined"] == 0
    assert shown["prefetch"] > UNFIT
    there.publish(numbered(5, start=200))
    assert here.take(5) == numbered(5, start=200)
    assert agent.history(*link(here)).count("backoff") == 0
    assert agent.terminate() == 0
