"""The sites and the agent of the federation tests, between which shovels run here."""

from tests.integration.federation.conftest import agent_of, brokers, here, site_on, there

__all__ = ["agent_of", "brokers", "here", "site_on", "there"]
