"""Brokers that the whole session shares, and names that make sharing safe; nothing starts before a test asks."""

import gc
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.lab.cluster import Cluster
from tests.lab.lab import Lab
from tests.lab.node import DEFAULT_PLUGINS, NATIVE_PLUGINS, Node
from tests.lab.proxy import Proxy
from tests.lab.session import LAB, lab_of

pytest_plugins = ["tests.lab.plugin", "tests.scheduling"]

COLLECT_AFTER = 20_000, 20, 20

# How long an example takes says nothing where brokers and other tests share the cores. Each run tries the same few, so
# that a change is what turns it red; `--hypothesis-profile=many` tries many others. What that finds gets an `@example`.
settings.register_profile(
    "few", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30, derandomize=True
)
settings.register_profile("many", settings.get_profile("few"), max_examples=300, derandomize=False)
settings.load_profile("few")


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """What was imported stays: a collection of garbage that looks at all of it takes half a second, which a test that
    bounds its own effort would be blamed for."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


@pytest.fixture(autouse=True)
def _plain_tracebacks() -> None:
    """Of what is logged where no agent configures logs: with colours and all variables, each takes 0.2 s of CPU."""
    renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Lab:
    return lab_of(request.config)


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that leaves a vhost, user, policy, permission, parameter or alarm on a shared broker fails."""
    yield
    if LAB in request.config.stash:
        request.config.stash[LAB].leftovers.check()


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


class Borrowed(Protocol):
    def __call__(
        self, *, release: str | None = None, plugins: Iterable[str] = DEFAULT_PLUGINS, conf: Iterable[str] = ()
    ) -> Node: ...


@pytest.fixture
def borrowed(lab: Lab) -> Iterator[Borrowed]:
    """`borrowed()`: a running broker that this test has to itself, to stop, kill, alarm or change."""
    with ExitStack() as nodes:
        yield lambda **wanted: nodes.enter_context(lab.borrowed(**wanted))


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
