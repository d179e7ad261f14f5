"""Messages between AMQP 1.0 and AMQP 1.0 that few clients write, and that a broker may close a session over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from agent.amqp10 import sections
from agent.amqp10.types import Value
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ask, named, running, shovels
from tests.integration.shovels.test_amqp10 import PLUGIN, Amqp10, core, ends
from tests.lab.node import DEFAULT_PLUGINS, Node
from tests.lab.user_program import depth
from tests.lab.waiting import eventually

__all__ = ["core"]

BODY: Final = sections.section(sections.DATA, Value("binary", b"x"))
OTHER: Final = "other"

pytestmark = pytest.mark.versions


def test_a_user_id_whose_section_is_described_in_full(agent_of: AgentOf, here: Site, core: Amqp10) -> None:
    """It goes on without that: RabbitMQ refuses another user's."""
    core.site.queue(name="src").queue(name="dest")
    admin = core.site.node.admin
    admin.user(OTHER, OTHER, "")
    admin.permissions(core.site.vhost, OTHER)
    definition = ends("both", core, here)
    definition["dest-uri"] = definition["dest-uri"].replace("guest:guest", f"{OTHER}:{OTHER}")
    agent = running(agent_of(here.node), here, definition)
    own = sections.PROPERTIES.encode(user_id=b"guest", subject="s")
    in_full = b"\x00\x80" + sections.PROPERTIES.code.to_bytes(8) + own[3:]
    in_words = b"\x00\xa3\x14amqp:properties:list" + own[3:]
    with core.user() as user:
        for properties in (own, in_full, in_words):
            assert user.send_bytes("src", properties + BODY) == "accepted"
    core.site.wait_depth(3, "dest")
    assert agent.history(*named(here)) == ["running"]


def test_an_annotation_that_the_core_refuses(
    agent_of: AgentOf, here: Site, core: Amqp10, broker_on: Callable[..., Node], site_on: SiteOn
) -> None:
    """The plugin of 3.10 takes it. The message that has it stays there, and the others pass."""
    plugin = Amqp10(site_on(broker_on(None, plugins=(*DEFAULT_PLUGINS, PLUGIN), name="amqp10")), is_in_core=False)
    plugin.site.queue(name="src")
    core.site.queue(name="dest")
    definition = plugin.end("src", "src") | core.end("dest", "dest") | {"reconnect-delay": 0.2}
    agent = running(agent_of(here.node), here, definition)
    numbers = Value("list", (Value("uint", 5),))
    refused = sections.section(sections.MESSAGE_ANNOTATIONS, Value("map", ((Value("symbol", "x-cc"), numbers),)))
    with plugin.user() as user:
        for annotations in (b"", refused, b"", b""):
            assert user.send_bytes("src", annotations + BODY) == "accepted"
    core.site.wait_depth(3, "dest")
    eventually(lambda: "can't be published" in str(agent.links()[named(here)].get("error")), what="it is named")
    assert ask(agent, "/api/links")[0]["status"] == "stalled"
    assert depth(plugin.site.uri, "src") == 0  # the shovel holds it


def test_a_filter_that_is_a_mapping(agent_of: AgentOf, here: Site, core: Amqp10) -> None:
    """RabbitMQ delivers of a stream what fits, and nothing else. It shows which filters it applies, and a remark names
    those that it doesn't."""
    core.site.node.admin.queue(core.site.vhost, "src", arguments={"x-queue-type": "stream"})
    core.site.queue(name="dest")
    with core.user() as user:
        for subject in ("other", "wanted", "other", "wanted"):
            properties = sections.PROPERTIES.encode(subject=subject)
            assert user.send_bytes("src", properties + BODY) == "accepted"
    arguments = {"x-stream-offset": "first", "amqp:properties-filter": {"subject": "wanted"}}
    definition = ends("both", core, here) | {"src-consumer-args": arguments}
    agent = running(agent_of(here.node), here, definition)
    core.site.wait_depth(2, "dest")
    with core.user() as user:
        found = [user.take("dest", 1)[0]["subject"] for _ in range(2)]
    assert found == ["wanted"] * 2
    assert ask(agent, "/api/links")[0]["error"] is None
    unknown = {"src-consumer-args": arguments | {"x-priority": 5}}
    agent.write({here.vhost: shovels(definition | unknown)})
    shown = "the source doesn't show that it applies x-priority of src-consumer-args"
    eventually(lambda: shown in str(ask(agent, "/api/links")[0]["error"]), what="it is named")
    assert ask(agent, "/api/links")[0]["status"] == "running"


def test_a_loss_is_counted_each_time_and_logged_once(agent_of: AgentOf, here: Site, core: Amqp10) -> None:
    core.site.queue(name="src")
    here.queue(name="dest")
    agent = running(agent_of(here.node), here, ends("from", core, here))
    footer = sections.section(sections.FOOTER, Value("map", ((Value("symbol", "a"), Value("uint", 1)),)))
    with core.user() as user:
        for message in (BODY + footer, BODY, BODY + footer):
            assert user.send_bytes("src", message) == "accepted"
    here.wait_depth(3, "dest")
    eventually(lambda: ask(agent, "/api/links")[0]["converted_with_loss"] == {"footer": 2}, what="both are counted")
    eventually(lambda: agent.logged("converted with loss"), what="it is logged")
    assert [each["lost"] for each in agent.logged("converted with loss")] == ["footer"]
