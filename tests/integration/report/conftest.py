"""Agents between brokers, and the Spark that tests of the pipeline share."""

from tests.integration.federation.conftest import agent_of, here, site_on, there
from tests.integration.report.account import accounted, narrow
from tests.integration.report.faults import faulty
from tests.integration.report.lag import lagging
from tests.integration.report.upstream import at_upstream, network, origin
from tests.pipeline.conftest import spark

__all__ = [
    "accounted",
    "agent_of",
    "at_upstream",
    "faulty",
    "here",
    "lagging",
    "narrow",
    "network",
    "origin",
    "site_on",
    "spark",
    "there",
]
