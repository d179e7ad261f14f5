"""Links that share connections: the trouble of one is its own."""

from __future__ import annotations

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site, federated
from tests.integration.federation.test_failures import link
from tests.integration.federation.test_types import TYPE_PLUGINS
from tests.lab.lab import Lab


@pytest.fixture
def here(lab: Lab, site_on: SiteOn) -> Site:
    return site_on(lab.shared("types", plugins=TYPE_PLUGINS))


def test_a_type_that_is_not_known_upstream(agent_of: AgentOf, here: Site, there: Site) -> None:
    """Old brokers close the connection over it, and others on that would begin anew each time it is tried."""
    here.exchange().queue("k")
    here.exchange("fed.odd", "x-random")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    odd = here.vhost, "fed.odd", "origin"
    agent.wait_for("invalid", odd)
    agent.wait_for("running", link(here))
    assert "'x-random'" in agent.links()[odd]["error"]
    assert agent.history(*link(here)) == ["running"]
