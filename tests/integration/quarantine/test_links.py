"""A message that the downstream can't take goes to the quarantine beside its source, and what follows flows on."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.process import memory_mib
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.sites import Q, Site, X, federated
from tests.integration.federation.test_credentials import origin, replace, wait_read
from tests.integration.federation.test_failures import link
from tests.integration.quarantine.scene import LARGE, QUARANTINE, only, publish_one, quarantined
from tests.integration.queue_links import scene as queue_links
from tests.integration.shovels.shoveling import links_of, named, shovel
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import eventually

MANY = 250


def test_of_an_exchange_link(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange().queue("#")
    there.exchange()
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    there.publish(numbered(20))
    here.wait_depth(20, Q)
    before = time.time()
    publish_one(
        there, X, "a.b", LARGE, expiration=3600, user_id="guest", type="t", headers={"mine": 1, "CC": ["a.copy"]}
    )
    there.publish(numbered(20, start=20))
    assert here.take(40) == numbered(40)

    [message] = quarantined(there, 1)
    assert message.body.decode() == LARGE
    headers = dict(message.headers)
    assert headers["x-quarantine-reason"] == "too_large"
    assert headers["x-quarantine-link"] == only(agent)["id"]
    assert (headers["x-quarantine-exchange"], headers["x-quarantine-routing-key"]) == (X, "a.b")
    when = headers["x-quarantine-time"]
    assert isinstance(when, datetime) and before - 1 <= when.replace(tzinfo=UTC).timestamp() <= time.time() + 1
    assert (headers["mine"], message.type, message.expiration, message.user_id) == (1, "t", None, None)
    shown = only(agent)
    assert (shown["status"], shown["error"], shown["quarantined"]) == ("running", None, 1)
    assert shown["reconnects"] == 1, "the first refusal tells the limit"
    assert agent.terminate() == 0


def test_it_is_reached_by_the_password_of_now(
    agent_of: AgentOf, here: Site, there: Site, tmp_path: Path, name: Callable[[str], str]
) -> None:
    """A changed one restarts no link."""
    here.exchange().queue("#")
    there.exchange()
    admin, user, password = there.node.admin, name("renewed"), tmp_path / "password"
    admin.user(user, "first-password")
    admin.permissions(there.vhost, user)
    replace(password, "first-password")
    uri = there.node.uri(there.vhost, user, "PASSWORD").replace("PASSWORD", f"${{file:{password}}}")
    agent = agent_of(here.node).write({here.vhost: origin(uri)}).start()
    agent.wait_for("running", link(here))
    there.wait_bound("#")
    publish_one(there, X, "k", LARGE)
    eventually(lambda: only(agent)["quarantined"] == 1, what="it is in quarantine")
    agent.wait_for("running", link(here))  # again: the first refusal shows the limit
    admin.user(user, "second-password")
    replace(password, "second-password")
    wait_read(agent, 2)
    publish_one(there, X, "k", LARGE)
    eventually(lambda: only(agent)["quarantined"] == 2, what="another one, too")
    assert only(agent)["reconnects"] == 1
    admin.delete("users", user)


def test_of_a_queue_link(agent_of: AgentOf, here: Site, there: Site) -> None:
    queue_links.declare(here, there)
    agent = agent_of(here.node).write({here.vhost: queue_links.federated(there)}).start()
    with queue_links.User(here) as user:
        there.publish(numbered(20), queue_links.Q, exchange="")
        user.wait(20)  # what is unconfirmed when the limit is learned comes twice
        there.publish([LARGE, *numbered(20, start=20)], queue_links.Q, exchange="")
        assert sorted(user.wait(40)) == numbered(40)
        [message] = quarantined(there, 1)
    assert message.body.decode() == LARGE
    assert message.headers["x-quarantine-exchange"] == ""
    assert message.headers["x-quarantine-routing-key"] == queue_links.Q
    assert agent.terminate() == 0


def test_of_shovels(agent_of: AgentOf, here: Site, there: Site) -> None:
    """One that moves what is there counts it among that."""
    defined = {
        name: shovel(there, here, src_queue=name, dest_queue=name, **keys)
        for name, keys in {"endless": {}, "moves": {"src_delete_after": "queue-length"}}.items()
    }
    for name in defined:
        there.queue(name=name).publish([*numbered(20), LARGE, *numbered(20, start=20)], name, exchange="")
    agent = agent_of(here.node).write({here.vhost: {"shovels": defined}}).start()
    agent.wait_for("terminated", named(here, "moves"))
    for name in defined:
        assert set(here.take(40, queue=name)) >= set(numbered(40)[20:])
    assert [message.body.decode() for message in quarantined(there, 2)] == [LARGE] * 2
    assert [link["quarantined"] for link in links_of(agent).values()] == [1, 1]
    assert [depth(there.uri, name) for name in defined] == [0, 0]
    assert agent.terminate() == 0


def test_many_large_ones_take_bounded_memory(agent_of: AgentOf, here: Site, there: Site) -> None:
    """As many as the source sends ahead come at once. Where the quarantine is slow, they are read after five seconds
    all the same, and what finds no room then goes back and comes again later."""
    here.exchange()
    there.exchange()
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    here.queue("#")
    there.wait_bound("#")
    there.publish("x" * 1024 * 1024 for _ in range(MANY))
    eventually(lambda: only(agent)["quarantined"] == MANY, what="all are in quarantine")
    assert depth(there.uri, QUARANTINE) == MANY
    assert memory_mib(agent.pid, peak=True) <= 230, "the agent itself, and messages of 128 MiB"
    eventually(lambda: only(agent)["error"] is None, what="nothing is left of those that went back")
