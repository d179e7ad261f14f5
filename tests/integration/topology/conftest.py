"""Sites and agents, as for federation."""

from tests.integration.federation.conftest import agent_of, brokers, site_on

__all__ = ["agent_of", "brokers", "site_on"]
