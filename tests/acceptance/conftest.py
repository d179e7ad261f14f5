"""Commands read all that is defined on a broker, and examples use vhost `/`: no other test may use one meanwhile."""

from __future__ import annotations

import pytest

from tests.conftest import Borrowed
from tests.lab.node import Node


@pytest.fixture
def broker(borrowed: Borrowed) -> Node:
    return borrowed()


@pytest.fixture
def second_broker(borrowed: Borrowed) -> Node:
    return borrowed()
