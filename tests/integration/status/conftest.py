"""The same sites and agents as federation's tests have."""

from tests.integration.federation.conftest import agent_of, here, site_on, there

__all__ = ["agent_of", "here", "site_on", "there"]
