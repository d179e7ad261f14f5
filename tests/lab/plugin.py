"""How pytest gets its lab: one for the session, which all its workers join; and where its time went, at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.lab.cost import Costs
from tests.lab.session import JOINED, LAB, lab_of

COSTS: Final = pytest.StashKey[Costs]()
BOOTED: Final = ("broker", "second")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--boot", action="store_true", help="start the most used brokers while tests are collected")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Of pytest-xdist, in the process that starts its workers."""
    node.workerinput[JOINED] = str(lab_of(node.config).directory)


def pytest_sessionstart(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput") or not session.config.getoption("boot"):
        return
    session.config.stash[COSTS] = Costs.counting()
    for name in BOOTED:
        lab_of(session.config).shared(name, ready=False)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[None]:
    """What a fixture of several tests makes on a shared broker is none of them's."""
    lab = request.config.stash.get(LAB, None)
    if lab is None or fixturedef.scope == "function":
        return (yield)
    with lab.leftovers.of_many_tests():
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if COSTS in config.stash:
        terminalreporter.section("where the time went")
        terminalreporter.write_line(f"brokers started: {lab_of(config).started}")
        for line in config.stash[COSTS].lines():
            terminalreporter.write_line(line)
        for line in os.environ.get("FEDERATION_AGENT_ASIDE", "").splitlines():
            terminalreporter.write_line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    if LAB in config.stash:
        config.stash[LAB].close()
