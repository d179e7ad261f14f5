"""The sites and the agent of the federation tests, between which shovels run here."""

import pytest

from tests.integration.federation.conftest import agent_of, brokers, here, site_on, there
from tests.integration.shovels.test_amqp10 import core, ten
from tests.lab.lab import Lab

__all__ = ["agent_of", "brokers", "core", "here", "site_on", "ten", "there"]


@pytest.fixture
def lab_dead_uri(lab: Lab) -> str:
    """Where nobody listens."""
    return f"amqp://127.0.0.1:{lab.ports.take()}"
