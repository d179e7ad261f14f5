"""Beside the native shovel plugin: the same shovel, run by one after the other."""

from __future__ import annotations

import signal

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ask, named, parameter, parameters, shovel
from tests.lab.node import NATIVE_PLUGINS
from tests.lab.user_program import numbered, times
from tests.lab.waiting import eventually

PLUGINS = ("rabbitmq_shovel", "rabbitmq_shovel_management")


@pytest.mark.thorough
def test_the_plugin_lets_go_and_comes_back(agent_of: AgentOf, borrowed: Borrowed, there: Site) -> None:
    """A parameter that is left when the plugin is disabled is run, and deleted once it has finished."""
    node = borrowed(plugins=NATIVE_PLUGINS)
    here = Site(node, "/")
    parameter(here, shovel(there, here))
    parameter(here, shovel(there, here, src_queue="src2", dest_queue="dest2", src_delete_after=20), "twenty")
    agent = agent_of(node).write(definitions={"management": True}).start()
    agent.wait_for("standby", named(here), named(here, "twenty"))
    assert "shovel plugin" in agent.links()[named(here)]["error"]
    there.publish(numbered(100), "src", exchange="")
    assert here.take(100, queue="dest") == numbered(100)

    node.run("rabbitmq-plugins", "disable", *PLUGINS)
    agent.wait_for("running", named(here), named(here, "twenty"))
    there.publish(numbered(1_000), "src", exchange="")
    there.publish(numbered(30), "src2", exchange="")
    assert times(here.take(1_000, queue="dest")) == dict.fromkeys(numbered(1_000), 1)
    assert here.take(20, queue="dest2") == numbered(20)
    eventually(lambda: parameters(here) == ["drain"], what="the parameter is deleted")
    eventually(lambda: [each["name"] for each in ask(agent, "/api/shovels")] == ["drain"], what="it is gone")

    node.run("rabbitmq-plugins", "enable", *PLUGINS)
    eventually(lambda: node.admin.get("overview"), what="the HTTP API answers", ignoring=Exception)
    agent.signal(signal.SIGHUP)
    agent.wait_for("standby", named(here))
    there.publish(numbered(1_000), "src", exchange="")
    assert times(here.take(1_000, queue="dest")) == dict.fromkeys(numbered(1_000), 1)
    assert there.take(10, queue="src2") == numbered(10, start=20)
