"""Sites and agents as for exchange links."""

from tests.integration.federation.conftest import agent_of, brokers, here, site_on, there

__all__ = ["agent_of", "brokers", "here", "site_on", "there"]
