"""Shovels whose ends speak AMQP 1.0, on brokers that have it as a plugin and on those that have it in their core."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ask, named, running, shovels, wait_error
from tests.integration.shovels.test_resets import (
    COUNT,
    PREFETCH,
    RESETS,
    ProxyTo,
    all_taken,
    interrupted,
    reconnects,
    reset_while,
)
from tests.lab.amqp10_client import Amqp10Client
from tests.lab.node import DEFAULT_PLUGINS, Node
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import eventually

PLUGIN: Final = "rabbitmq_amqp1_0"
WITH_PLUGIN: Final = "here"
IN_CORE: Final = "sid"
RELEASES: Final = (WITH_PLUGIN, pytest.param(IN_CORE, marks=pytest.mark.versions))


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Amqp10:
    """A vhost of a broker that speaks AMQP 1.0, and how it spells addresses."""

    site: Site
    is_in_core: bool

    def address(self, queue: str) -> str:
        return f"/queues/{quote(queue, safe='')}" if self.is_in_core else f"/amq/queue/{queue}"

    def user(self) -> Amqp10Client:
        """A user's program there."""
        return Amqp10Client(self.site.node, self.site.vhost, is_old=not self.is_in_core)

    def end(self, which: str, queue: str, *, port: int | None = None) -> dict[str, Any]:
        """The keys of one end of a shovel."""
        uri = self.site.node.uri(self.site.vhost, port=port)
        return {f"{which}-protocol": "amqp10", f"{which}-uri": uri, f"{which}-address": self.address(queue)}


@pytest.fixture(params=RELEASES)
def ten(request: pytest.FixtureRequest, broker_on: Callable[..., Node], site_on: SiteOn) -> Amqp10:
    if request.param == WITH_PLUGIN:
        return Amqp10(site_on(broker_on(None, plugins=(*DEFAULT_PLUGINS, PLUGIN), name="amqp10")), is_in_core=False)
    return Amqp10(site_on(broker_on(request.param)), is_in_core=True)


def old_end(which: str, site: Site, queue: str, *, port: int | None = None) -> dict[str, Any]:
    """The keys of an end that speaks AMQP 0-9-1."""
    return {f"{which}-uri": site.node.uri(site.vhost, port=port), f"{which}-queue": queue}


def ends(
    kind: str, ten: Amqp10, here: Site, *, ports: tuple[int | None, int | None] = (None, None), src: str = "src"
) -> dict[str, Any]:
    """A shovel from `src` to `dest`; `kind` says which ends speak AMQP 1.0."""
    source, destination = ports
    start = ten.end("src", src, port=source) if kind != "to" else old_end("src", here, src, port=source)
    end = (
        ten.end("dest", "dest", port=destination) if kind != "from" else old_end("dest", here, "dest", port=destination)
    )
    return start | end


def sites(kind: str, ten: Amqp10, here: Site) -> tuple[Site, Site]:
    return here if kind == "to" else ten.site, here if kind == "from" else ten.site


KINDS: Final = ("both", "from", "to")


@pytest.mark.parametrize("kind", KINDS)
def test_messages_pass(agent_of: AgentOf, here: Site, ten: Amqp10, kind: str) -> None:
    source, destination = sites(kind, ten, here)
    src, dest = "source of all/1" if ten.is_in_core else "source of all", "dest"  # the plugin ends names at a slash
    source.queue(name=src)
    destination.queue(name=dest)
    running(agent_of(here.node), here, ends(kind, ten, here, src=src))
    source.publish(numbered(500), src, exchange="")
    assert destination.take(500, queue=dest) == numbered(500)
    eventually(lambda: depth(source.uri, src) == 0, what="all are acknowledged")


@pytest.mark.parametrize(("kind", "end"), [("both", "source"), ("to", "destination")])
def test_resets_lose_nothing(
    agent_of: AgentOf, here: Site, ten: Amqp10, proxy_to: ProxyTo, *, kind: str, end: str
) -> None:
    agent = lose_nothing(agent_of, here, ten, proxy_to, kind=kind, end=end, count=COUNT)
    assert reconnects(agent) >= RESETS


def lose_nothing(
    agent_of: AgentOf, here: Site, ten: Amqp10, proxy_to: ProxyTo, *, kind: str, end: str, count: int
) -> Agent:
    """Messages pass while one end is reset again and again; what comes twice was in flight."""
    source, destination = sites(kind, ten, here)
    source.queue(name="src")
    destination.queue(name="dest")
    proxy = proxy_to((source if end == "source" else destination).node)
    ports = (proxy.port, None) if end == "source" else (None, proxy.port)
    definition = ends(kind, ten, here, ports=ports) | {"reconnect-delay": 0.2, "src-prefetch-count": PREFETCH}
    agent = running(agent_of(here.node), here, definition)
    part = count // RESETS
    reset_while(
        agent, here, proxy, lambda number: source.publish(numbered(part, start=part * number), "src", exchange="")
    )
    agent.wait_for("running", named(here))
    eventually(lambda: depth(source.uri, "src") == 0, what="the source is drained")
    came = Counter(all_taken(agent, destination))
    assert set(came) == set(numbered(count))
    log.info("%s, %s: of %d messages %d repeated", kind, end, count, came.total() - len(came))
    assert came.total() - len(came) <= RESETS * PREFETCH
    return agent


@pytest.mark.thorough
def test_so_many_messages_and_hardly_more(agent_of: AgentOf, here: Site, ten: Amqp10, proxy_to: ProxyTo) -> None:
    """None too few, whatever is reset: what comes twice counts once. Too many are those whose acknowledgements were on
    their way."""
    ten.site.queue(name="src").publish(numbered(COUNT), "src", exchange="")
    here.queue(name="dest")
    proxy = proxy_to(ten.site.node)
    proxy.delay(0.1)  # for which acknowledgements are on their way
    wanted = COUNT * 3 // 4
    definition = ends("from", ten, here, ports=(proxy.port, None)) | {"src-delete-after": wanted}
    definition |= {"reconnect-delay": 0.2, "src-prefetch-count": PREFETCH}
    agent = interrupted(agent_of(here.node), here, proxy, definition)
    agent.wait_for("terminated", named(here))
    came = set(all_taken(agent, here))
    assert set(numbered(wanted)) <= came
    assert len(came) <= wanted + RESETS * PREFETCH
    eventually(lambda: depth(ten.site.uri, "src") == COUNT - len(came), what="all others are back")
    log.info("%d of %d moved too many", len(came) - wanted, wanted)


def test_a_missing_address(agent_of: AgentOf, here: Site, ten: Amqp10) -> None:
    """It is tried again, and goes on once the queue is there. RabbitMQ 3.10 doesn't look for that of a destination."""
    ten.site.queue(name="dest")
    agent = waiting(agent_of(here.node), here, ends("both", ten, here) | {"src-predeclared": True})
    wait_error(agent, here, "shovel source", f"attaching to {ten.address('src')!r}", "queue 'src'")
    ten.site.queue(name="src")
    agent.wait_for("running", named(here))
    ten.site.publish(numbered(10), "src", exchange="")
    assert ten.site.take(10, queue="dest") == numbered(10)


def waiting(agent: Agent, site: Site, definition: dict[str, Any]) -> Agent:
    agent.write({site.vhost: shovels(definition)}).start()
    agent.wait_for("backoff", named(site))
    return agent


@pytest.fixture
def core(broker_on: Callable[..., Node], site_on: SiteOn) -> Amqp10:
    return Amqp10(site_on(broker_on(IN_CORE)), is_in_core=True)


@pytest.mark.versions
@pytest.mark.parametrize("kind", ["both", "to"])
def test_a_full_destination(agent_of: AgentOf, here: Site, core: Amqp10, kind: str) -> None:
    """What is refused is tried again, in its order, and nothing is lost."""
    source, destination = sites(kind, core, here)
    source.queue(name="src")
    destination.node.admin.queue(
        destination.vhost, "dest", arguments={"x-max-length": 5, "x-overflow": "reject-publish"}
    )
    agent = running(agent_of(here.node), here, ends(kind, core, here))
    source.publish(numbered(20), "src", exchange="")
    wait_error(agent, here, "refused")
    came: list[str] = []
    while len(came) < 20:
        came += destination.take(min(5, 20 - len(came)), queue="dest")
    assert sorted(came) == sorted(numbered(20))
    eventually(lambda: depth(source.uri, "src") == 0, what="all are acknowledged")


@pytest.mark.versions
def test_nothing_takes_them(agent_of: AgentOf, here: Site, core: Amqp10) -> None:
    """They stay at the source until a queue is bound."""
    core.site.queue(name="src").exchange("x", "direct")
    definition = ends("both", core, here) | {"dest-address": "/exchanges/x/key"}
    agent = running(agent_of(here.node), here, definition)
    core.site.publish(numbered(20), "src", exchange="")
    wait_error(agent, here, "refused")
    core.site.queue("key", name="dest", exchange="x")
    assert sorted(core.site.take(20, queue="dest")) == sorted(numbered(20))
    eventually(lambda: depth(core.site.uri, "src") == 0, what="all are acknowledged")


@pytest.mark.versions
def test_a_message_that_is_too_large(agent_of: AgentOf, here: Site, core: Amqp10) -> None:
    """It goes to the quarantine beside its source, and the others pass."""
    source, destination = here, core.site
    source.queue(name="src")
    destination.queue(name="dest")
    agent = running(agent_of(here.node), here, ends("to", core, here))
    source.publish(["x" * (17 * 1024 * 1024)], "src", exchange="")
    source.publish(numbered(20), "src", exchange="")
    assert destination.take(20, queue="dest") == numbered(20)
    eventually(lambda: ask(agent, "/api/links")[0]["quarantined"] == 1, what="it is in the quarantine")
    eventually(lambda: depth(source.uri, "src") == 0, what="it has left its source")


@pytest.mark.versions
def test_a_queue_is_declared_and_its_backlog_shown(agent_of: AgentOf, here: Site, core: Amqp10) -> None:
    """As the plugin does it; both go by requests that other brokers don't know."""
    core.site.node.admin.queue(core.site.vhost, "dest", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    agent = running(agent_of(here.node), here, ends("both", core, here))
    assert core.site.node.admin.get("queues", core.site.vhost, "src")["durable"]
    core.site.publish(numbered(3_000), "src", exchange="")
    eventually(lambda: ask(agent, "/api/links")[0]["backlog"] == 3_000, what="all wait")
