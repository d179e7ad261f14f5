"""Two vhosts of the same name on two brokers, and the command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import Borrowed
from tests.integration.migration.clients import PASSWORD, Clients
from tests.integration.migration.scene import MigrationScene, scene
from tests.lab.lab import Lab
from tests.lab.node import Node


@pytest.fixture
def between(
    lab: Lab, tmp_path: Path, name: Callable[[str], str], borrowed: Borrowed
) -> Iterator[Callable[[Node, Node], MigrationScene]]:
    """`between(source, target)`: a vhost that the source has, and the target not yet; gone before a broker that was
    borrowed is given back."""
    with ExitStack() as made:
        yield lambda source, target: made.enter_context(scene(lab, tmp_path, name("migrated"), (source, target)))


@pytest.fixture
def migrated(between: Callable[[Node, Node], MigrationScene], broker: Node, second_broker: Node) -> MigrationScene:
    return between(broker, second_broker)


@pytest.fixture
def clients_of(name: Callable[[str], str]) -> Iterator[Callable[[MigrationScene], Clients]]:
    """`clients_of(scene)`: a user of clients at its source."""
    with ExitStack() as made:

        def at(found: MigrationScene) -> Clients:
            clients = Clients(found, name("shop"))
            found.source.admin.user(clients.user, PASSWORD)
            found.source.admin.permissions(found.vhost, clients.user)
            made.callback(clients.remove)
            return clients

        yield at


@pytest.fixture
def clients(migrated: MigrationScene, clients_of: Callable[[MigrationScene], Clients]) -> Clients:
    """They have the queue "orders"."""
    migrated.source.admin.queue(migrated.vhost, "orders")
    return clients_of(migrated)
