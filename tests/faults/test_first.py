"""The account of every message, for faults that leave the brokers as they are: the session's do."""

from __future__ import annotations

import pytest

from tests.faults.faults import FIRST, Series, alone
from tests.faults.judging import put_through
from tests.faults.scene import Ends, Scene
from tests.lab.node import Node


@pytest.fixture(scope="module")
def ends(broker: Node, second_broker: Node) -> Ends:
    return Ends((second_broker,), broker)


@pytest.fixture
def series() -> Series:
    return alone(FIRST)


def test_an_agent_that_is_killed_and_cut_off_loses_nothing(scene: Scene, series: Series) -> None:
    put_through(scene, series)
