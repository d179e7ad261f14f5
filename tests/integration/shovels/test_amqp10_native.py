"""Shovels with ends of AMQP 1.0 beside the native plugin, and what is thorough about them."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.conftest import Borrowed
from tests.integration.conftest import start
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import named, parameter, parameters, running
from tests.integration.shovels.test_amqp10 import IN_CORE, PLUGIN, WITH_PLUGIN, Amqp10, lose_nothing
from tests.integration.shovels.test_resets import COUNT, ProxyTo
from tests.lab.lab import Lab
from tests.lab.node import NATIVE_PLUGINS
from tests.lab.user_program import consumers, depth, numbered, times
from tests.lab.waiting import eventually

PLUGINS: Final = ("rabbitmq_shovel", "rabbitmq_shovel_management")
CLIENT: Final = "client"
MANY: Final = max(COUNT, 20_000)


def native(ten: Amqp10, source: str, destination: str, **keys: Any) -> dict[str, Any]:
    """As the plugin takes it: without a path."""
    uri = f"amqp://guest:guest@127.0.0.1:{ten.site.node.amqp_port}?hostname={quote('vhost:/', safe='')}"
    written = {name.replace("_", "-"): value for name, value in keys.items()}
    return ten.end("src", source) | ten.end("dest", destination) | {"src-uri": uri, "dest-uri": uri} | written


@pytest.mark.thorough
@pytest.mark.parametrize("release", [None, pytest.param(IN_CORE, marks=pytest.mark.versions)])
def test_the_plugin_lets_go_and_comes_back(agent_of: AgentOf, borrowed: Borrowed, release: str | None) -> None:
    """A parameter that is left when the plugin is disabled is run, and deleted once it has finished."""
    node = borrowed(release=release, plugins=NATIVE_PLUGINS if release else (*NATIVE_PLUGINS, PLUGIN))
    site = Site(node, "/")
    ten = Amqp10(site, is_in_core=release is not None)
    for queue in ("src", "dest", "src2", "dest2"):
        site.queue(name=queue)
    parameter(site, native(ten, "src", "dest"))
    parameter(site, native(ten, "src2", "dest2", src_delete_after=20), "twenty")
    agent = agent_of(node).write(definitions={"management": True}).start()
    agent.wait_for("standby", named(site), named(site, "twenty"))
    site.publish(numbered(100), "src", exchange="")
    assert site.take(100, queue="dest") == numbered(100)

    node.run("rabbitmq-plugins", "disable", *PLUGINS)
    agent.wait_for("running", named(site), named(site, "twenty"))
    site.publish(numbered(1_000), "src", exchange="")
    site.publish(numbered(30), "src2", exchange="")
    assert times(site.take(1_000, queue="dest")) == dict.fromkeys(numbered(1_000), 1)
    assert site.take(20, queue="dest2") == numbered(20)
    eventually(lambda: parameters(site) == ["drain"], what="the parameter is deleted")

    node.run("rabbitmq-plugins", "enable", *PLUGINS)
    agent.wait_for("standby", named(site))
    eventually(lambda: consumers(site.uri, "src") == 1, what="the plugin consumes")
    site.publish(numbered(1_000), "src", exchange="")
    assert times(site.take(1_000, queue="dest")) == dict.fromkeys(numbered(1_000), 1)
    assert site.take(10, queue="src2") == numbered(10, start=20)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("ten", "kind", "end"),
    [
        (WITH_PLUGIN, "both", "source"),
        (WITH_PLUGIN, "from", "destination"),
        (WITH_PLUGIN, "to", "destination"),
        pytest.param(IN_CORE, "both", "destination", marks=pytest.mark.versions),
        pytest.param(IN_CORE, "from", "source", marks=pytest.mark.versions),
    ],
    indirect=["ten"],
)
def test_twenty_thousand_messages_and_twenty_cuts(
    agent_of: AgentOf, here: Site, ten: Amqp10, proxy_to: ProxyTo, *, kind: str, end: str
) -> None:
    lose_nothing(agent_of, here, ten, proxy_to, kind=kind, end=end, count=MANY)


@pytest.mark.thorough
def test_by_tls_and_a_certificate(agent_of: AgentOf, here: Site, lab: Lab, site_on: SiteOn) -> None:
    """The source by TLS and a password, the destination by the client's certificate."""
    tls = start(lab, "tls10", more_plugins=(PLUGIN,))
    site = site_on(tls.node).queue(name="src").queue(name="dest")
    tls.node.admin.user(CLIENT, "unused", "")
    tls.node.admin.permissions(site.vhost, CLIENT)
    ten = Amqp10(site, is_in_core=False)
    at = f"localhost:{tls.amqps_port}/{quote(site.vhost, safe='')}?{tls.trust}"
    uris = {
        "src-uri": f"amqps://guest:guest@{at}",
        "dest-uri": f"amqps://{at}&{tls.show(CLIENT)}&auth_mechanism=external",
    }
    running(agent_of(here.node), here, ten.end("src", "src") | ten.end("dest", "dest") | uris)
    site.publish(numbered(500), "src", exchange="")
    assert site.take(500, queue="dest") == numbered(500)
    eventually(lambda: depth(site.uri, "src") == 0, what="all are acknowledged")
