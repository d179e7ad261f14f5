"""Agents between brokers, a browser, and the Spark that tests of the pipeline share."""

from tests.integration.federation.conftest import agent_of, here, site_on, there
from tests.integration.page.conftest import browser
from tests.pipeline.conftest import spark

__all__ = ["agent_of", "browser", "here", "site_on", "spark", "there"]
