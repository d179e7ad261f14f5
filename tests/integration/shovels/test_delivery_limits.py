"""Quorum queues that count deliveries: sessions that fail bring no message nearer to its limit. Before 4.3 they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ask, running, shovel, wait_error
from tests.lab.node import Node
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

BrokerOn = Callable[..., Node]
LIMIT: Final = 3


@pytest.mark.versions
def test_sessions_that_find_no_exchange_lose_nothing(
    agent_of: AgentOf, site_on: SiteOn, broker_on: BrokerOn, here: Site
) -> None:
    """The exchange is each message's own, so it is known to be missing only once a message is published to it."""
    there = site_on(broker_on("sid"))
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": LIMIT}
    there.node.admin.queue(there.vhost, "src", arguments=arguments)
    there.exchange("from.x", "fanout").bind(name="src", exchange="from.x")
    definition = shovel(there, here, dest_exchange_key="k", reconnect_delay=0.2)
    agent = running(agent_of(here.node), here, definition)
    there.publish(numbered(50), exchange="from.x")

    def failed() -> bool:
        [link] = ask(agent, "/api/links")
        return int(link["reconnects"]) > 3 * LIMIT

    eventually(failed, what="more sessions have failed than the limit is")
    wait_error(agent, here, "from.x")
    here.exchange("from.x", "fanout").queue("", name="got", exchange="from.x")
    assert set(here.take(50, queue="got")) == set(numbered(50))
