"""config/shovel.yaml, as it is but for the addresses."""

from __future__ import annotations

import yaml

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import named
from tests.lab.releases import PROJECT
from tests.lab.user_program import numbered

EXAMPLE = PROJECT / "config" / "shovel.yaml"
OURS = "amqp://guest:guest@127.0.0.1:5672"
NEW = "amqps://agent:${env:NEW_PASSWORD}@new-cluster.local"


def test_a_cluster_moves_to_another_with_its_dead_letters_and_its_audit(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    here.exchange("audit").queue(name="dead-letters").publish(dead := numbered(10), "dead-letters", exchange="")
    there.exchange("audit").queue("#", name="copies", exchange="audit")
    written = yaml.safe_load(EXAMPLE.read_text().replace(OURS, here.uri).replace(NEW, there.uri))
    agent = agent_of(here.node).write({here.vhost: {"shovels": written["shovels"]}}).start()
    agent.wait_for("running", named(here, "drain-orders"), named(here, "copy-audit"))
    agent.wait_for("terminated", named(here, "move-dead-letters"))
    here.publish(orders := numbered(100, start=100), "orders", exchange="")
    here.publish(audited := numbered(20), "user.login", exchange="audit")
    assert sorted(there.take(110, queue="orders")) == sorted(dead + orders)
    assert there.take(20, queue="copies") == audited
    agent.terminate()
