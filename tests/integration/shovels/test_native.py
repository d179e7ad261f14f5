"""Beside the native shovel plugin: the same shovels, run by one after the other."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import links_of, named, parameter, parameters, shovel
from tests.integration.shovels.test_amqp10 import IN_CORE, PLUGIN, Amqp10
from tests.lab.node import NATIVE_PLUGINS
from tests.lab.user_program import consumers, numbered, times
from tests.lab.waiting import eventually

PLUGINS = ("rabbitmq_shovel", "rabbitmq_shovel_management")


@dataclass(frozen=True)
class Moving:
    """A shovel, and one that moves twenty messages, by one protocol."""

    protocol: str
    source: Site
    destination: Site

    def names(self) -> tuple[str, str]:
        return self.protocol, f"{self.protocol} twenty"

    def define(self, here: Site, is_in_core: bool) -> None:
        for name, keys in zip(self.names(), ({}, {"src-delete-after": 20}), strict=True):
            src, dest = f"src.{name}", f"dest.{name}"
            self.source.queue(name=src)
            self.destination.queue(name=dest)
            parameter(here, self._ends(src, dest, is_in_core) | keys, name)

    def _ends(self, src: str, dest: str, is_in_core: bool) -> dict[str, Any]:
        match self.protocol:
            case "amqp10":  # as the plugin takes it: without a path
                ten = Amqp10(self.source, is_in_core)
                uri = f"amqp://guest:guest@127.0.0.1:{self.source.node.amqp_port}?hostname={quote('vhost:/', safe='')}"
                return ten.end("src", src) | ten.end("dest", dest) | {"src-uri": uri, "dest-uri": uri}
            case "local":
                keys = {"src-protocol": "local", "src-uri": "amqp://", "dest-protocol": "local", "dest-uri": "amqp://"}
                return keys | {"src-queue": src, "dest-queue": dest}
        return shovel(self.source, self.destination, src_queue=src, dest_queue=dest)

    def wait_consumed(self) -> None:
        eventually(lambda: consumers(self.source.uri, f"src.{self.protocol}") == 1, what="the plugin consumes")

    def pass_each_once(self, count: int) -> None:
        name, _ = self.names()
        self.source.publish(numbered(count), f"src.{name}", exchange="")
        assert times(self.destination.take(count, queue=f"dest.{name}")) == dict.fromkeys(numbered(count), 1)


@pytest.mark.thorough
@pytest.mark.parametrize("release", [None, pytest.param(IN_CORE, marks=pytest.mark.versions)])
def test_the_plugin_lets_go_and_comes_back(
    agent_of: AgentOf, borrowed: Borrowed, there: Site, release: str | None
) -> None:
    """Parameters that are left when the plugin is disabled are run, whatever the ends speak, and deleted once they have
    finished. `local` is only known to the plugin of 4.x."""
    node = borrowed(release=release, plugins=NATIVE_PLUGINS if release else (*NATIVE_PLUGINS, PLUGIN))
    here = Site(node, "/")
    first = Moving("local", here, here) if release else Moving("amqp091", there, here)
    moving = (first, Moving("amqp10", here, here))
    for each in moving:
        each.define(here, is_in_core=release is not None)
    endless = {each.protocol for each in moving}
    names = [named(here, name) for each in moving for name in each.names()]
    running = [named(here, name) for name in endless]
    agent = agent_of(node).write(definitions={"management": True}).start()
    agent.wait_for("standby", *names)
    assert all("shovel plugin" in agent.links()[name]["error"] for name in names)
    for each in moving:
        each.pass_each_once(100)

    node.run("rabbitmq-plugins", "disable", *PLUGINS)
    agent.wait_for("running", *names)
    for each in moving:
        each.pass_each_once(1_000)
        _, twenty = each.names()
        each.source.publish(numbered(30), f"src.{twenty}", exchange="")
        assert each.destination.take(20, queue=f"dest.{twenty}") == numbered(20)
    eventually(lambda: {*parameters(here)} == endless, what="those that have finished are deleted")
    eventually(lambda: links_of(agent).keys() == endless, what="they are gone")

    node.run("rabbitmq-plugins", "enable", *PLUGINS)
    eventually(lambda: node.admin.get("overview"), what="the HTTP API answers", ignoring=Exception)
    agent.signal(signal.SIGHUP)
    agent.wait_for("standby", *running)
    for each in moving:
        each.wait_consumed()
        each.pass_each_once(1_000)
        _, twenty = each.names()
        assert each.source.take(10, queue=f"src.{twenty}") == numbered(10, start=20)
