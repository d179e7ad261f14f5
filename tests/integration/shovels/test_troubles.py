"""What is missing, deleted, cut or restarted: it is shown, tried again, and with `on-confirm` nothing is lost."""

from __future__ import annotations

import json
from typing import Final

import pytest

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ask, named, running, shovel, shovels, wait_error
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

QUICKLY = {"reconnect_delay": 1}


@pytest.mark.parametrize("end", ["src", "dest"])
def test_a_predeclared_queue_that_is_missing_is_waited_for(
    agent_of: AgentOf, here: Site, there: Site, end: str
) -> None:
    definition = shovel(there, here, **QUICKLY, **{f"{end}_predeclared": True})
    agent = agent_of(here.node).write({here.vhost: shovels(definition)}).start()
    where = "shovel source" if end == "src" else "shovel destination"
    wait_error(agent, here, where, f"queue '{end}' is missing", f"{end}-predeclared")
    (there if end == "src" else here).queue(name=end)
    agent.wait_for("running", named(here))
    there.publish(numbered(10), "src", exchange="")
    assert here.take(10, queue="dest") == numbered(10)


ROUTES_AT_ONCE: Final = {"alternate-exchange": "spare"}
"""To what is bound to another exchange: between its own declaration and a binding, messages would be dropped."""


def test_an_exchange_that_is_missing_is_waited_for_at_either_end(agent_of: AgentOf, here: Site, there: Site) -> None:
    """Natively the shovel is `running` for ever where that of the destination is missing."""
    definition = shovel(there, here, src_exchange="from.x", dest_exchange="to.x", **QUICKLY)
    agent = agent_of(here.node).write({here.vhost: shovels(definition)}).start()
    wait_error(agent, here, "shovel destination", "exchange 'to.x' is missing", "declare it")
    here.exchange("to.x", "fanout").queue("", name="got", exchange="to.x")
    wait_error(agent, here, "shovel source", "exchange 'from.x' is missing", "declare it")
    there.exchange("from.x", "fanout")
    agent.wait_for("running", named(here))


def test_a_destination_exchange_that_is_deleted_loses_nothing(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange("to.x", "fanout").exchange("spare", "fanout").queue("", name="got", exchange="spare")
    agent = running(agent_of(here.node), here, shovel(there, here, dest_exchange="to.x", **QUICKLY))
    here.delete_exchange("to.x")
    there.publish(numbered(500), "src", exchange="")
    wait_error(agent, here, "shovel destination", "to.x")
    here.exchange("to.x", "fanout", arguments=ROUTES_AT_ONCE)
    assert set(here.take(500, queue="got")) == set(numbered(500))


def test_an_exchange_of_messages_own_that_is_missing_is_shown(agent_of: AgentOf, here: Site, there: Site) -> None:
    there.exchange("from.x", "fanout").queue("", name="src", exchange="from.x")
    agent = running(agent_of(here.node), here, shovel(there, here, dest_exchange_key="k", **QUICKLY))
    here.exchange("spare", "fanout").queue("", name="got", exchange="spare")
    there.publish(numbered(50), "a", exchange="from.x")
    wait_error(agent, here, "shovel destination", "from.x", "dest-exchange")
    here.exchange("from.x", "fanout", arguments=ROUTES_AT_ONCE)
    assert set(here.take(50, queue="got")) == set(numbered(50))


def test_a_destination_queue_that_is_deleted_loses_nothing(agent_of: AgentOf, here: Site, there: Site) -> None:
    """What is published to no queue is confirmed, and so would be lost."""
    agent = running(agent_of(here.node), here, shovel(there, here, **QUICKLY))
    here.delete_queue("dest")
    there.publish(bodies := numbered(2_000), "src", exchange="")
    eventually(lambda: "backoff" in agent.history(here.vhost, "drain", ""), what="the deletion is noticed")
    agent.wait_for("running", named(here))
    assert set(here.take(2_000, queue="dest")) == set(bodies)


def test_a_source_queue_that_is_deleted_is_declared_again(agent_of: AgentOf, here: Site, there: Site) -> None:
    agent = running(agent_of(here.node), here, shovel(there, here, **QUICKLY))
    there.delete_queue("src")
    eventually(lambda: "backoff" in agent.history(here.vhost, "drain", ""), what="the deletion is noticed")
    agent.wait_for("running", named(here))
    there.publish(numbered(10), "src", exchange="")
    assert here.take(10, queue="dest") == numbered(10)


def test_a_user_without_access_is_shown_with_its_side(agent_of: AgentOf, here: Site, there: Site) -> None:
    definition = shovel(there, here) | {"dest-uri": here.node.uri(here.vhost, "nobody", "wrong")}
    agent = agent_of(here.node).write({here.vhost: shovels(definition)}).start()
    agent.wait_for("invalid", named(here))
    wait_error(agent, here, "shovel destination", "login refused for user 'nobody'")
    [link] = ask(agent, "/api/links")
    assert "downstream_refused" in json.dumps(ask(agent, f"/api/links/{link['id']}"))
