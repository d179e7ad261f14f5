"""Shovels whose ends speak AMQP 1.0, on brokers that have it as a plugin and on those that have it in their core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import links_of, wait_error
from tests.lab.amqp10_client import Amqp10Client
from tests.lab.node import DEFAULT_PLUGINS, Node
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import eventually

PLUGIN: Final = "rabbitmq_amqp1_0"
WITH_PLUGIN: Final = "here"
IN_CORE: Final = "sid"
RELEASES: Final = (WITH_PLUGIN, pytest.param(IN_CORE, marks=pytest.mark.versions))


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
    kind: str,
    ten: Amqp10,
    here: Site,
    *,
    ports: tuple[int | None, int | None] = (None, None),
    src: str = "src",
    dest: str = "dest",
) -> dict[str, Any]:
    """A shovel from `src` to `dest`; `kind` says which ends speak AMQP 1.0."""
    source, destination = ports
    start = ten.end("src", src, port=source) if kind != "to" else old_end("src", here, src, port=source)
    end = ten.end("dest", dest, port=destination) if kind != "from" else old_end("dest", here, dest, port=destination)
    return start | end


def sites(kind: str, ten: Amqp10, here: Site) -> tuple[Site, Site]:
    return here if kind == "to" else ten.site, here if kind == "from" else ten.site


KINDS: Final = ("both", "from", "to")


@pytest.fixture
def core(broker_on: Callable[..., Node], site_on: SiteOn) -> Amqp10:
    return Amqp10(site_on(broker_on(IN_CORE)), is_in_core=True)


FULL: Final = {"max-length": 5, "overflow": "reject-publish"}


@pytest.mark.versions
def test_what_the_destination_refuses_and_what_is_declared(agent_of: AgentOf, here: Site, core: Amqp10) -> None:
    """What is refused is tried again and nothing is lost: a queue is full, or none is bound. What is too large goes to
    the quarantine beside its source, and others pass. A missing queue is declared and its backlog shown, as the plugin
    does it; both go by requests that other brokers don't know."""
    there = core.site.exchange("x", "direct").queue(name="dest large")
    there.node.admin.policy(there.vhost, "full", "^dest full", definition=FULL, apply_to="queues")
    there.node.admin.queue(there.vhost, "nothing", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    kinds = {"full both": "both", "full to": "to", "unbound": "both", "large": "to", "waiting": "both"}
    defined = {name: ends(kind, core, here, src=f"src {name}", dest=f"dest {name}") for name, kind in kinds.items()}
    defined["unbound"] |= {"dest-address": "/exchanges/x/key"}
    defined["waiting"] |= {"dest-address": core.address("nothing")}
    sources = {name: sites(kind, core, here)[0] for name, kind in kinds.items()}
    for name in ("full both", "full to"):
        sources[name].queue(name=f"src {name}")
        there.queue(name=f"dest {name}")
    sources["unbound"].queue(name="src unbound")
    sources["large"].queue(name="src large")
    agent = agent_of(here.node).write({here.vhost: {"shovels": defined}}).start()
    agent.wait_running(len(defined))
    assert there.node.admin.get("queues", there.vhost, "src waiting")["durable"]

    sources["large"].publish(["x" * (17 * 1024 * 1024)], "src large", exchange="")
    for name, source in sources.items():
        source.publish(numbered(20), f"src {name}", exchange="")
    for name in ("full both", "full to", "unbound"):
        wait_error(agent, here, "refused", name=name)
    there.node.admin.delete("policies", there.vhost, "full")
    there.queue("key", name="dest unbound", exchange="x")
    assert there.take(20, queue="dest large") == numbered(20), "of these none is refused, so their order stays"
    for name in ("full both", "full to", "unbound"):
        assert sorted(there.take(20, queue=f"dest {name}")) == numbered(20)
    for name in ("full both", "full to", "unbound", "large"):
        eventually(lambda name=name: depth(sources[name].uri, f"src {name}") == 0, what="all are acknowledged")  # type: ignore[misc]
    eventually(lambda: links_of(agent)["large"]["quarantined"] == 1, what="it is in the quarantine")
    there.publish(numbered(2_980, start=20), "src waiting", exchange="")
    eventually(lambda: links_of(agent)["waiting"]["backlog"] == 3_000, what="all wait")
