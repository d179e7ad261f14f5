"""Sites, and the agent between them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site
from tests.lab.lab import Lab
from tests.lab.node import Node


class AgentOf(Protocol):
    def __call__(
        self, downstream: Node, *, management: bool = True, uri: str = "", management_uri: str = ""
    ) -> Agent: ...


SiteOn = Callable[[Node], Site]


@pytest.fixture
def agent_of(lab: Lab, tmp_path: Path) -> Iterator[AgentOf]:
    """`agent_of(broker)`: an agent beside that broker, not started; several have directories of their own."""
    made: list[Agent] = []

    def agent(downstream: Node, *, management: bool = True, uri: str = "", management_uri: str = "") -> Agent:
        directory = tmp_path / f"agent{len(made)}"
        directory.mkdir()
        made.append(Agent(lab, directory, downstream, lab.ports.take(), management, uri, management_uri))
        return made[-1]

    yield agent
    for each in made:
        if each.alive:
            each.kill()


@pytest.fixture
def site_on(name: Callable[[str], str], borrowed: Borrowed) -> Iterator[SiteOn]:
    """`site_on(broker)`: a vhost of this test's own; gone before a broker that was borrowed is given back."""
    with ExitStack() as vhosts:
        yield lambda node: Site(node, vhosts.enter_context(node.admin.temporary_vhost(name("site"))))


@pytest.fixture
def brokers(broker: Node, second_broker: Node) -> list[Node]:
    return [broker, second_broker]


@pytest.fixture
def here(broker: Node, site_on: SiteOn) -> Site:
    """A downstream site."""
    return site_on(broker)


@pytest.fixture
def there(second_broker: Node, site_on: SiteOn) -> Site:
    """An upstream site on another broker."""
    return site_on(second_broker)
