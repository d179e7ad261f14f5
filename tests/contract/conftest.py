"""Each installed release in turn: this machine's, and those that `make versions` has prepared."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from tests.contract.asking import Asking, Release
from tests.lab import releases
from tests.lab.node import Node

HERE = "here"


def installed() -> list[str]:
    """But for this machine's. Their brokers run in chroots, which need root, or sudo without a password."""
    prepared = list(releases.prepared())
    is_enterable = os.geteuid() == 0 or (
        bool(prepared)
        and shutil.which("sudo") is not None
        and subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0
    )
    return prepared if is_enterable else []


@pytest.fixture(scope="session", params=[HERE, *installed()])
def node(request: pytest.FixtureRequest, broker_on: Callable[..., Node]) -> Node:
    return broker_on(None if request.param == HERE else request.param)


@pytest.fixture(scope="module")
def release(node: Node, request: pytest.FixtureRequest) -> Iterator[Release]:
    """With a vhost for the tests of a file."""
    version = str(node.admin.get("overview")["rabbitmq_version"])
    vhost = f"contract {request.node.name.rpartition('/')[2]}"
    with node.admin.temporary_vhost(vhost):
        yield Release(node, version, vhost)


@pytest.fixture
async def asking(release: Release) -> AsyncIterator[Callable[..., Asking]]:
    """`asking(user="u", password="p", query="?heartbeat=1", vhost="v")`: who asks, and how."""
    made: list[Asking] = []

    def one(*, vhost: str = release.vhost, **how: str) -> Asking:
        made.append(Asking(release.elsewhere(vhost), **how))
        return made[-1]

    yield one
    for each in made:
        await each.close()


@pytest.fixture
def ask(asking: Callable[..., Asking]) -> Asking:
    """`await ask(method, …)`: what the broker answers to the lab's administrator."""
    return asking()
