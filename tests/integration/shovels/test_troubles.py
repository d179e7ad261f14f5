"""What is missing, deleted, cut or restarted: it is shown, tried again, and with `on-confirm` nothing is lost."""

from __future__ import annotations

import json
from typing import Final

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ask, links_of, named, shovel, wait_error
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

ROUTES_AT_ONCE: Final = {"alternate-exchange": "spare"}
"""To what is bound to another exchange: between its own declaration and a binding, messages would be dropped."""


def test_what_is_missing_is_waited_for(agent_of: AgentOf, here: Site, there: Site) -> None:
    """Predeclared queues, and exchanges, at either end. Natively the shovel is `running` for ever where an exchange of
    the destination is missing. A user without access is shown with its side."""
    ends = {"src": ("shovel source", there), "dest": ("shovel destination", here)}
    defined = {
        end: shovel(there, here, src_queue=f"src.{end}", dest_queue=f"dest.{end}", **{f"{end}_predeclared": True})
        for end in ends
    }
    defined["x"] = shovel(there, here, src_exchange="from.x", dest_exchange="to.x")
    defined["nobody"] = shovel(there, here) | {"dest-uri": here.node.uri(here.vhost, "nobody", "wrong")}
    quickly = {name: found | {"reconnect-delay": 1} for name, found in defined.items()}
    agent = agent_of(here.node).write({here.vhost: {"shovels": quickly}}).start()
    for end, (where, site) in ends.items():
        wait_error(agent, here, where, f"queue '{end}.{end}' is missing", f"{end}-predeclared", name=end)
        site.queue(name=f"{end}.{end}")
        agent.wait_for("running", named(here, end))
        there.publish(numbered(10), f"src.{end}", exchange="")
        assert here.take(10, queue=f"dest.{end}") == numbered(10)
    wait_error(agent, here, "shovel destination", "exchange 'to.x' is missing", "declare it", name="x")
    here.exchange("to.x", "fanout").queue("", name="got", exchange="to.x")
    wait_error(agent, here, "shovel source", "exchange 'from.x' is missing", "declare it", name="x")
    there.exchange("from.x", "fanout")
    agent.wait_for("running", named(here, "x"))

    agent.wait_for("invalid", named(here, "nobody"))
    wait_error(agent, here, "shovel destination", "login refused for user 'nobody'", name="nobody")
    link = links_of(agent)["nobody"]
    assert "downstream_refused" in json.dumps(ask(agent, f"/api/links/{link['id']}"))


def test_what_is_deleted_loses_nothing(agent_of: AgentOf, here: Site, there: Site) -> None:
    """An exchange of the destination, and one of messages' own; the destination's queue, though what is published to no
    queue is confirmed; and the source's, which is declared again."""
    names = ("to.x", "own", "dest", "src")
    for name in ("to.x", "spare"):
        here.exchange(name, "fanout")
    for name in ("to.x", "own"):
        here.queue("", name=f"dest.{name}", exchange="spare")
    there.exchange("from.x", "fanout").queue("", name="src.own", exchange="from.x")
    defined = {name: shovel(there, here, src_queue=f"src.{name}", dest_queue=f"dest.{name}") for name in names}
    defined["to.x"] = shovel(there, here, src_queue="src.to.x", dest_exchange="to.x")
    defined["own"] = shovel(there, here, src_queue="src.own", dest_exchange_key="k")
    quickly = {name: found | {"reconnect-delay": 1} for name, found in defined.items()}
    agent = agent_of(here.node).write({here.vhost: {"shovels": quickly}}).start()
    agent.wait_running(len(names))
    here.delete_exchange("to.x")
    here.delete_queue("dest.dest")
    there.delete_queue("src.src")
    there.publish(bodies := numbered(500), "src.to.x", exchange="")
    there.publish(bodies, "src.dest", exchange="")
    there.publish(own := numbered(500, start=500), "a", exchange="from.x")
    wait_error(agent, here, "shovel destination", "to.x", name="to.x")
    here.exchange("to.x", "fanout", arguments=ROUTES_AT_ONCE)
    wait_error(agent, here, "shovel destination", "from.x", "dest-exchange", name="own")
    here.exchange("from.x", "fanout", arguments=ROUTES_AT_ONCE)
    for name in ("dest", "src"):
        eventually(lambda name=name: "backoff" in agent.history(*named(here, name)), what="the deletion is noticed")  # type: ignore[misc]
    agent.wait_for("running", *(named(here, name) for name in names))
    there.publish(bodies, "src.src", exchange="")
    for name in ("dest", "src"):
        assert set(here.take(500, queue=f"dest.{name}")) == set(bodies)
    for name in ("to.x", "own"):  # both are bound to what takes the messages of the other, too
        assert set(here.take(1_000, queue=f"dest.{name}")) == {*bodies, *own}
