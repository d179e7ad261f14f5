"""Sites and agents, as the tests of federation have them."""

from tests.integration.federation.conftest import agent_of, site_on

__all__ = ["agent_of", "site_on"]
