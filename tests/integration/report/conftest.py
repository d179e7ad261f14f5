"""Agents between brokers, and the Spark that tests of the pipeline share."""

from tests.integration.federation.conftest import agent_of, here, site_on, there
from tests.pipeline.conftest import spark

__all__ = ["agent_of", "here", "site_on", "spark", "there"]
