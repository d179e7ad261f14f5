"""Sites and agents, as the tests of federation have them."""

from tests.integration.federation.conftest import agent_of, here, site_on, there

__all__ = ["agent_of", "here", "site_on", "there"]
