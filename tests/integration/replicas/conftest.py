"""The sites and agents of the federation tests, several of one group here."""

from tests.integration.federation.conftest import agent_of, brokers, here, site_on, there

__all__ = ["agent_of", "brokers", "here", "site_on", "there"]
