"""Brokers that the whole session shares, and names that make sharing safe; nothing starts before a test asks."""

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import PurePosixPath
from typing import Final

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.lab.cluster import Cluster
from tests.lab.lab import Lab
from tests.lab.node import DEFAULT_PLUGINS, NATIVE_PLUGINS, Node
from tests.lab.proxy import Proxy

TOGETHER: Final = (
    ("tests/pipeline",),
    ("tests/integration/page",),
    (
        "tests/integration/amqp",
        "tests/integration/management",
        "tests/integration/runtime",
        "tests/integration/federation/test_expiry.py",
    ),
    ("tests/integration/federation/test_prefetch.py", "tests/integration/federation/test_releases.py"),
    (
        "tests/integration/federation/test_fairness.py",
        "tests/integration/federation/test_canaries.py",
        "tests/integration/lab/test_cluster.py",
    ),
)
"""One worker runs all of a row: another Spark, Chromium or set of rarely used brokers would cost more than it gains."""


class _ByRow(LoadScopeScheduling):  # type: ignore[misc]
    """Each worker takes whole files, or rows of them: what their tests share is made once."""

    def _split_scope(self, nodeid: str) -> str:
        file = PurePosixPath(nodeid.partition("::")[0])
        return next((row[0] for row in TOGETHER if any(file.is_relative_to(each) for each in row)), str(file))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Not by marks: the names that xdist 3.8 gives marked tests don't reach its scheduler under pytest 9.2."""
    return _ByRow(config, log)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    with Lab() as running:
        yield running


@pytest.fixture(scope="session")
def broker(lab: Lab) -> Node:
    """A broker of this machine's release with the HTTP API and the event exchange."""
    return lab.shared("broker")


@pytest.fixture(scope="session")
def second_broker(lab: Lab) -> Node:
    """Another of the same kind: the remote one of a federation."""
    return lab.shared("second")


@pytest.fixture(scope="session")
def native_broker(lab: Lab) -> Node:
    """A broker with the native federation and shovel plugins."""
    return lab.shared("native", plugins=NATIVE_PLUGINS)


@pytest.fixture(scope="session")
def cluster(lab: Lab) -> Cluster:
    """Two nodes that are one broker; a test that stops one starts it again."""
    return Cluster.of(lab, size=2).start()


@pytest.fixture
def proxy_to(lab: Lab) -> Iterator[Callable[[Node | int], Proxy]]:
    """`proxy_to(broker)`: a network of this test's own to a broker, or to any port, to make bad."""
    with ExitStack() as proxies:
        yield lambda target: proxies.enter_context(lab.proxy(target))


@pytest.fixture(scope="session")
def broker_on(lab: Lab) -> Callable[..., Node]:
    """`broker_on("trixie")`: a shared broker of another release, for tests marked `versions`."""

    def on(release: str | None, *, plugins: Iterable[str] = DEFAULT_PLUGINS, name: str = "broker") -> Node:
        return lab.shared(name, release=release, plugins=plugins)

    return on


@pytest.fixture
def name() -> Callable[[str], str]:
    """`name("orders")`: a name that no other test has."""
    return lambda prefix: f"{prefix}-{secrets.token_hex(4)}"


@pytest.fixture
def vhost(broker: Node, name: Callable[[str], str]) -> Iterator[str]:
    """A vhost of this test's own on `broker`."""
    with broker.admin.temporary_vhost(name("vhost")) as made:
        yield made


@pytest.fixture
def second_vhost(second_broker: Node, name: Callable[[str], str]) -> Iterator[str]:
    """A vhost of this test's own on `second_broker`."""
    with second_broker.admin.temporary_vhost(name("vhost")) as made:
        yield made
