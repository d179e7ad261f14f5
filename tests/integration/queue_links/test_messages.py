"""What queue links do to messages, and that none is lost or doubled."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, cast

from aio_pika.abc import AbstractIncomingMessage

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.queue_links.scene import (
    TAKEN_UPSTREAM,
    Q,
    User,
    consumer_tags,
    declare,
    federated,
    queue,
    taken_from,
    upstream_consumers,
    wait_error,
)
from tests.integration.status.asking import get
from tests.lab import user_program
from tests.lab.node import Node
from tests.lab.user_program import numbered, times
from tests.lab.waiting import eventually

NAME = "work Čeština 日本語 🐇"


def entry(uri: str, name: str = Q, *, visits: int = 1) -> dict[str, Any]:
    return {"uri": uri, "queue": name, "redelivered": False, "visit-count": visits}


def received(message: AbstractIncomingMessage) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", message.headers.get("x-received-from", []))


def test_headers_of_the_first_hop_and_of_a_return(agent_of: AgentOf, here: Site, there: Site) -> None:
    """Both ways between two queues of other names; what a message came with stays."""
    declare(here)
    declare(there, name="work there")
    there.exchange("x", "direct").bind("k", name="work there", exchange="x")
    agents = [
        agent_of(here.node).write({here.vhost: federated(there, queue="work there")}).start(),
        agent_of(there.node).write({there.vhost: federated(here, queue=Q)}).start(),
    ]
    agents[0].wait_for("running", queue(here))
    agents[1].wait_for("running", queue(there, "work there"))
    there.publish(["m"], "k", exchange="x", headers={"CC": ["elsewhere"], "mine": 1})
    found: list[AbstractIncomingMessage] = []
    with User(here, on_message=found.append) as user:
        user.wait(1)
    [message] = found
    assert message.headers == {
        "x-received-from": [entry(f"amqp://127.0.0.1:{there.node.ports.amqp}/{there.vhost}")],
        "x-original-exchange": "x",
        "x-original-routing-key": "k",
        "x-original-cc": ["elsewhere"],
        "mine": 1,
    }
    assert message.routing_key == Q
    assert not message.exchange
    headers = {key: value for key, value in message.headers.items() if key != "mine"}
    here.publish(["back"], Q, exchange="", headers=headers)
    with User(there, "work there", on_message=found.append) as user:
        user.wait(1)
    back = received(found[-1])
    assert [each["queue"] for each in back] == ["work there", Q]
    eventually(lambda: upstream_consumers(here) == 0, what="the link back has cancelled")
    there.publish(["again"], "work there", exchange="", headers=dict(found[-1].headers))
    with User(here, on_message=found.append) as user:
        user.wait(1)
    assert [(each["queue"], each["visit-count"]) for each in received(found[-1])] == [
        (Q, 2),
        ("work there", 1),
    ]
    assert found[-1].headers["x-original-exchange"] == "x"


def test_consumers_upstream_go_first(agent_of: AgentOf, here: Site, there: Site) -> None:
    declare(here, there)
    agent = agent_of(here.node).write({here.vhost: federated(there, **{"consumer-tag": "mine"})}).start()
    agent.wait_for("running", queue(here))
    with User(here) as far, User(there) as near:
        eventually(lambda: upstream_consumers(there) == 2, what="the link consumes")
        eventually(lambda: "mine" in consumer_tags(there), what="the consumer's tag is the one that is defined")
        for batch in range(10):
            there.publish(numbered(10, start=10 * batch), Q, exchange="")
            time.sleep(0.1)
        assert near.wait(100) == numbered(100)
        assert far.taken == []
        wait_error(agent, TAKEN_UPSTREAM)
        near.leave()
        there.publish(["far"], Q, exchange="")
        assert far.wait(1) == ["far"]
        wait_error(agent, None)


BATCHES: Final = 5
"""Of messages; between two the link may find that nobody takes any, and wait."""


def test_a_consumer_that_takes_one_at_a_time_does_not_make_the_link_flap(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    declare(here, there)
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", queue(here))
    with User(here, prefetch=1, pause=0.02) as user:
        for batch in range(BATCHES):
            there.publish(numbered(20, start=20 * batch), Q, exchange="")
            time.sleep(0.5)
        assert user.wait(20 * BATCHES) == numbered(20 * BATCHES)
        [tag] = eventually(lambda: consumer_tags(there), what="the link's consumer is listed")
    consumed = int(tag.removeprefix("federation-link-origin") or 1)
    assert consumed <= 2 * BATCHES, "it begins anew between messages, not between batches"


def test_a_consumer_moves_between_brokers_federated_both_ways(agent_of: AgentOf, here: Site, there: Site) -> None:
    declare(here, there, arguments={"x-queue-type": "quorum"})
    agent_of(here.node).write({here.vhost: federated(there)}).start().wait_for("running", queue(here))
    agent_of(there.node).write({there.vhost: federated(here)}).start().wait_for("running", queue(there))
    here.publish(numbered(500), Q, exchange="")
    there.publish(numbered(500, start=500), Q, exchange="")
    taken: list[str] = []
    for turn in range(8):
        with User((here, there)[turn % 2], prefetch=10, pause=0.002) as user:
            user.wait(100)
        taken += user.taken
        if len(taken) >= 900:
            break
    with User(here, prefetch=10) as user:
        eventually(lambda: len(set(taken) | set(user.taken)) == 1_000, what="all have come")
        time.sleep(1)
    taken += user.taken
    assert times(taken) == dict.fromkeys(numbered(1_000), 1)


def test_busy_consumers_on_both_sides_do_not_send_messages_to_and_fro(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    declare(here, there)
    agent_of(here.node).write({here.vhost: federated(there)}).start().wait_for("running", queue(here))
    agent_of(there.node).write({there.vhost: federated(here)}).start().wait_for("running", queue(there))
    found: list[AbstractIncomingMessage] = []
    with (
        User(here, prefetch=1, pause=0.5, on_message=found.append) as one,
        User(there, prefetch=1, pause=0.5, on_message=found.append) as other,
    ):
        here.publish(numbered(8), Q, exchange="")
        eventually(lambda: len(one.taken) + len(other.taken) == 8, what="all are taken")
    assert sorted(one.taken + other.taken) == numbered(8)
    visits = [each["visit-count"] for message in found for each in received(message)]
    assert 0 < max(visits, default=0) < 200


def test_names_of_any_letters_and_a_queue_that_is_declared_as_downstream(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    declare(here, name=NAME, arguments={"x-queue-type": "quorum", "x-max-length": 5_000})
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", queue(here, NAME))
    declared = there.node.admin.get("queues", there.vhost, NAME)
    assert declared["arguments"] == {"x-queue-type": "quorum", "x-max-length": 5_000}
    assert declared["durable"]
    there.exchange("x", "fanout").bind(name=NAME, exchange="x")
    there.publish(bodies := numbered(20), exchange="x")
    assert asyncio.run(taken_from(here, NAME, 20)) == bodies
    agent.write({})
    eventually(lambda: agent.history(*queue(here, NAME))[-1] == "stopping", what="the link is gone")
    time.sleep(1)
    assert there.node.admin.get("queues", there.vhost, NAME)["name"] == NAME  # nothing upstream is deleted


def test_a_queue_that_is_deleted_downstream_takes_no_message_along(agent_of: AgentOf, here: Site, there: Site) -> None:
    declare(here, there)
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", queue(here))
    with User(here) as user:
        there.publish(numbered(5), Q, exchange="")
        user.wait(5)
        here.delete_queue(Q)
        there.publish(late := numbered(50, start=5), Q, exchange="")
        eventually(lambda: user_program.depth(there.uri, Q) == 50, what="what was taken is back")

    def causes() -> list[tuple[str, list[str]]]:
        return [(each["trouble"], each["names"]) for each in get(agent, "/api/causes")["causes"]]

    eventually(lambda: causes() == [("queue deleted", [f"{here.vhost}/{Q}"])], what="its link doesn't vanish silently")
    declare(here)
    eventually(lambda: not causes(), what="it is back")
    with User(here) as user:
        assert sorted(user.wait(50)) == late


def test_vhosts_blue_and_green(agent_of: AgentOf, site_on: SiteOn, broker: Node) -> None:
    """Two old vhosts of one broker drain into a new one, and what is published late follows."""
    old, older, new = site_on(broker), site_on(broker), site_on(broker)
    declare(old, older, new)
    agent = agent_of(broker).write({new.vhost: federated(old, older)}).start()
    agent.wait_for("running", queue(new, upstream="origin1"), queue(new, upstream="origin2"))
    old.publish(numbered(300), Q, exchange="")
    older.publish(numbered(300, start=300), Q, exchange="")
    with User(new, prefetch=50) as user:
        user.wait(600)
        old.publish(numbered(100, start=600), Q, exchange="")
        user.wait(700)
    assert times(user.taken) == dict.fromkeys(numbered(700), 1)
    assert [user_program.depth(site.uri, Q) for site in (old, older)] == [0, 0]
