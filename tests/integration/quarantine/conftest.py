"""Two brokers: the downstream takes no body larger than LIMIT."""

import pytest

from tests.integration.federation.conftest import SiteOn, agent_of, site_on
from tests.integration.federation.sites import Site
from tests.integration.quarantine.scene import LIMIT
from tests.lab.lab import Lab
from tests.lab.node import Node

__all__ = ["agent_of", "site_on"]


@pytest.fixture
def narrow(lab: Lab) -> Node:
    return lab.shared("narrow", conf=[f"max_message_size = {LIMIT}"])


@pytest.fixture
def here(narrow: Node, site_on: SiteOn) -> Site:
    return site_on(narrow)


@pytest.fixture
def there(broker: Node, site_on: SiteOn) -> Site:
    return site_on(broker)
