"""A scene for every test, with brokers that the session shares."""

import pytest

from tests.hostile.scene import Scene
from tests.integration.federation.conftest import AgentOf, SiteOn, agent_of, site_on
from tests.lab.node import Node

__all__ = ["agent_of", "site_on"]


@pytest.fixture
def scene(agent_of: AgentOf, site_on: SiteOn, broker: Node, second_broker: Node) -> Scene:
    return Scene(agent_of(broker), site_on(broker), site_on(second_broker), site_on(broker))
