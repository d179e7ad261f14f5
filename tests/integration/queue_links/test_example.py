"""config/queues.yaml, as it is but for the addresses."""

from __future__ import annotations

from contextlib import ExitStack

import yaml

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.sites import Site
from tests.integration.queue_links.scene import Q, User, declare, queue
from tests.lab.node import Node
from tests.lab.releases import PROJECT
from tests.lab.user_program import depth, numbered

EXAMPLE = PROJECT / "config" / "queues.yaml"
OLD = "amqp://agent:${env:OLD_PASSWORD}@old-cluster.local/"


def test_old_vhosts_drain_into_the_new_one(agent_of: AgentOf, broker: Node, second_broker: Node) -> None:
    with ExitStack() as vhosts:
        green = Site(broker, vhosts.enter_context(broker.admin.temporary_vhost("green")))
        blue, legacy = (
            Site(second_broker, vhosts.enter_context(second_broker.admin.temporary_vhost(name)))
            for name in ("blue", "legacy")
        )
        declare(green, blue)
        declare(legacy, name="jobs")
        text = EXAMPLE.read_text()
        for old in (blue, legacy):
            text = text.replace(f"{OLD}{old.vhost}", old.uri)
        agent = agent_of(broker).write(yaml.safe_load(text)["vhosts"]).start()
        agent.wait_for("running", queue(green, upstream="blue"), queue(green, upstream="legacy"))
        blue.publish(numbered(100), Q, exchange="")
        legacy.publish(numbered(100, start=100), "jobs", exchange="")
        with User(green) as user:
            assert sorted(user.wait(200)) == numbered(200)
            assert depth(blue.uri, Q) == depth(legacy.uri, "jobs") == 0
        agent.terminate()
