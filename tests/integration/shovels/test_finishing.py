"""`src-delete-after` and `src-delete-after-duration`."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.federation.test_renaming import RENAMED
from tests.integration.shovels.shoveling import ask, links_of, named, shovel, shovels
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import eventually


def test_a_number_of_messages_and_a_time(agent_of: AgentOf, here: Site, there: Site) -> None:
    modes = ("on-confirm", "on-publish")
    for name in (*modes, "timed", "later"):
        there.queue(name=name).publish(numbered(300), name, exchange="")
    defined = {
        mode: shovel(there, here, src_queue=mode, dest_queue=mode, src_delete_after=100, ack_mode=mode)
        for mode in modes
    }
    for name, seconds in (("timed", 3), ("later", 3_600)):
        defined[name] = shovel(there, here, src_queue=name, dest_queue=name, src_delete_after_duration=seconds)
    began = time.monotonic()
    agent = agent_of(here.node).write({here.vhost: {"shovels": defined}}).start()
    agent.wait_for("terminated", *(named(here, name) for name in modes))
    for mode in modes:
        assert here.take(100, queue=mode) == numbered(100)
        assert there.take(200, queue=mode) == numbered(200, start=100)
    agent.wait_for("terminated", named(here, "timed"))
    assert time.monotonic() - began >= 3
    came = here.take(depth(here.uri, "timed"), queue="timed")
    assert there.take(300 - len(came), queue="timed") == numbered(300)[len(came) :]
    there.publish(numbered(10), "timed", exchange="")
    assert depth(there.uri, "timed") == 10, "nothing is taken any more"
    assert here.take(300, queue="later") == numbered(300)
    assert links_of(agent)["later"]["status"] == "running"


def test_what_was_there_at_the_start_and_nothing_else(agent_of: AgentOf, here: Site, there: Site) -> None:
    """Exactly those messages, while others are published without a pause."""
    modes, count = ("on-confirm", "no-ack"), 2_000
    for mode in modes:
        there.queue(name=mode).publish(numbered(count), mode, exchange="")
    agent = agent_of(here.node)
    ends = threading.Event()

    def load() -> None:
        start = count
        while not ends.is_set():
            for mode in modes:
                there.publish(numbered(50, start=start), mode, exchange="")
            start += 50

    publishing = threading.Thread(target=load)
    after: dict[str, Any] = {"src_delete_after": "queue-length"}
    defined = {mode: shovel(there, here, src_queue=mode, dest_queue=mode, ack_mode=mode, **after) for mode in modes}
    agent.write({here.vhost: {"shovels": defined}}).start()
    for mode in modes:  # it may end within 100 ms
        eventually(lambda mode=mode: "running" in agent.history(*named(here, mode)), what="it runs, or has run")  # type: ignore[misc]
    publishing.start()
    try:
        agent.wait_for("terminated", *(named(here, mode) for mode in modes))
    finally:
        ends.set()
        publishing.join()
    for mode in modes:
        assert here.take(count, queue=mode) == numbered(count)


def test_an_empty_queue_ends_it_at_once_and_a_restart_runs_it_again(agent_of: AgentOf, here: Site, there: Site) -> None:
    definition = shovel(there, here, src_delete_after="queue-length")
    agent = agent_of(here.node).write({here.vhost: shovels(definition)}).start()
    agent.wait_for("terminated", named(here))
    [link] = ask(agent, "/api/links")
    assert (link["status"], link["kind"]) == ("terminated", "shovel")
    assert "restart" in link["error"]
    assert [each["state"] for each in ask(agent, "/api/shovels")] == ["terminated"]
    there.publish(numbered(10), "src", exchange="")
    ask(agent, f"/api/links/{link['id']}/restart", "POST")
    assert here.take(10, queue="dest") == numbered(10)
    agent.wait_for("terminated", named(here))
    assert agent.terminate() == 0


def test_another_name_of_the_downstream_begins_no_new_count(
    agent_of: AgentOf, borrowed: Borrowed, site_on: SiteOn, there: Site
) -> None:
    """One that has finished stays so, and one that runs moves what is left."""
    here = site_on(borrowed())
    there.queue(name="src").publish(numbered(10), "src", exchange="")
    there.queue(name="src2").publish(numbered(3), "src2", exchange="")
    done = shovel(there, here, src_delete_after=5)
    runs = shovel(there, here, src_queue="src2", dest_queue="dest2", src_delete_after=5)
    agent = agent_of(here.node).write({here.vhost: {"shovels": {"done": done, "runs": runs}}}).start()
    agent.wait_for("terminated", named(here, "done"))
    assert here.take(3, queue="dest2") == numbered(3)
    former = here.node.cluster_name
    try:
        here.node.admin.put("cluster-name", body={"name": "renamed"})
        agent.wait_logged(RENAMED)
        there.publish(numbered(10, start=3), "src2", exchange="")
        agent.wait_for("terminated", named(here, "runs"))
    finally:
        here.node.admin.put("cluster-name", body={"name": former})
    eventually(lambda: (depth(there.uri, "src2"), depth(there.uri, "src")) == (8, 5), what="the others are back")
    assert agent.history(*named(here, "done")).count("running") == 1


def test_another_password_is_no_reason_to_run_again(agent_of: AgentOf, here: Site, there: Site) -> None:
    """It takes effect with the next restart."""
    there.node.admin.user("mover", "former", "administrator")
    there.node.admin.permissions(there.vhost, "mover")
    there.queue(name="src").publish(numbered(10), "src", exchange="")

    def definition(password: str) -> dict[str, Any]:
        uri = there.node.uri(there.vhost, "mover", password)
        return shovels(shovel(there, here, src_uri=uri, src_delete_after=5))

    agent = agent_of(here.node).write({here.vhost: definition("former")}).start()
    agent.wait_for("terminated", named(here))
    there.node.admin.user("mover", "latter", "administrator")
    agent.write({here.vhost: definition("latter")})
    read = agent.wait_logged("configuration read", 2)[-1]["timestamp"]
    eventually(lambda: ask(agent, "/api/overview")["reloaded"] > read, what="it is in force")
    [link] = ask(agent, "/api/links")
    assert (link["status"], depth(there.uri, "src")) == ("terminated", 5)
    ask(agent, f"/api/links/{link['id']}/restart", "POST")
    assert here.take(10, queue="dest") == numbered(10)
    agent.wait_for("terminated", named(here))
    assert agent.history(*named(here)).count("running") == 2
