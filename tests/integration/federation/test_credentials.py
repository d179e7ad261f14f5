"""Passwords and tokens that change while links run, and logins without either."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.conftest import TlsBroker
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import BY_EVENTS, Agent, Named
from tests.integration.federation.sites import Site, X, policies
from tests.lab.admin import Admin, AdminError
from tests.lab.tokens import TokenBroker
from tests.lab.waiting import eventually

LIFE: Final = 20.0
USER: Final = "renewed"


def replace(path: Path, text: str) -> None:
    written = path.with_suffix(".new")
    written.write_text(text)
    written.replace(path)


def origin(uri: str) -> dict[str, Any]:
    return {"upstreams": {"origin": {"uri": uri, "reconnect-delay": 1}}, "policies": policies()}


def link(site: Site) -> Named:
    return site.vhost, X, "origin"


def connections_of(admin: Admin, user: str) -> list[dict[str, Any]]:
    return [each for each in admin.get("connections") if each.get("user") == user]


def wait_read(agent: Agent, count: int) -> None:
    """Until a changed file is in force."""
    agent.wait_logged("configuration read", count)


def test_a_token_is_renewed_on_the_connections_that_are_open(
    agent_of: AgentOf, here: Site, token_broker: TokenBroker, site_on: SiteOn, tmp_path: Path
) -> None:
    there = site_on(token_broker.node)
    here.exchange().queue("k")
    token = tmp_path / "token"
    ends = time.monotonic() + LIFE
    replace(token, token_broker.token(LIFE))
    uri = token_broker.uri(f"${{file:{token}}}", there.vhost)
    agent = agent_of(here.node).write({here.vhost: origin(uri)}).start()
    agent.wait_for("running", link(here))
    there.wait_bound("k")
    replace(token, token_broker.token(300))
    renewed = agent.wait_logged("token renewed", 2)  # the connection that asks, and that of messages
    assert all("upstream origin" in str(each["broker"]) for each in renewed)
    time.sleep(max(0.0, ends + 1 - time.monotonic()))
    here.bind("another")  # a broker refuses whatever is asked with a token that has expired
    there.wait_bound("another", "k")
    there.publish(["m"])
    assert here.take(1) == ["m"]
    assert agent.history(*link(here)) == ["running"]


@pytest.mark.thorough
def test_a_token_of_the_downstream_is_renewed(
    agent_of: AgentOf, there: Site, token_broker: TokenBroker, site_on: SiteOn, tmp_path: Path
) -> None:
    here = site_on(token_broker.node)
    here.exchange().queue("k")
    token = tmp_path / "token"
    ends = time.monotonic() + LIFE
    replace(token, token_broker.token(LIFE))
    agent = agent_of(here.node, uri=token_broker.uri(f"${{file:{token}}}")).write({here.vhost: origin(there.uri)})
    agent.start(BY_EVENTS).wait_for("running", link(here))
    replace(token, token_broker.token(300))
    agent.wait_logged("token renewed", 2)  # messages go by one connection, events come by another
    time.sleep(max(0.0, ends + 1 - time.monotonic()))
    here.bind("another")
    there.wait_bound("another", "k")  # an event reports it
    there.publish(["m"])
    assert here.take(1) == ["m"]
    assert agent.history(*link(here)) == ["running"]


def test_a_token_that_the_broker_refuses_costs_one_reconnect_and_is_shown(
    agent_of: AgentOf, here: Site, token_broker: TokenBroker, site_on: SiteOn, tmp_path: Path
) -> None:
    there = site_on(token_broker.node)
    here.exchange().queue("k")
    token = tmp_path / "token"
    replace(token, token_broker.token(300))
    uri = token_broker.uri(f"${{file:{token}}}", there.vhost)
    agent = agent_of(here.node).write({here.vhost: origin(uri)}).start()
    agent.wait_for("running", link(here))
    forged = token_broker.token(300)[:-9] + "forged-it"
    replace(token, forged)
    agent.wait_for("invalid", link(here))
    assert forged not in agent.log.read_text()
    assert any("was refused" in str(each["reason"]) for each in agent.wait_logged("token not renewed"))
    replace(token, token_broker.token(300))
    agent.wait_for("running", link(here))


def test_a_password_is_read_again_and_used_for_the_next_connection(
    agent_of: AgentOf, here: Site, there: Site, tmp_path: Path, name: Callable[[str], str]
) -> None:
    here.exchange().queue("k")
    admin, user, password = there.node.admin, name(USER), tmp_path / "password"
    admin.user(user, "first-password")
    admin.permissions(there.vhost, user)
    replace(password, "first-password\n")
    uri = there.node.uri(there.vhost, user, "PASSWORD").replace("PASSWORD", f"${{file:{password}}}")
    agent = agent_of(here.node).write({here.vhost: origin(uri)}).start()
    agent.wait_for("running", link(here))
    admin.user(user, "second-password")  # what is connected stays so
    replace(password, "second-password\n")
    wait_read(agent, 2)
    there.publish(["m"])
    assert here.take(1) == ["m"]
    assert agent.history(*link(here)) == ["running"]
    for each in eventually(lambda: connections_of(admin, user), what="its connections are listed"):
        with suppress(AdminError):  # without one of them the agent closes the others
            admin.delete("connections", each["name"])
    eventually(lambda: len(agent.history(*link(here))) > 1, what="the link has lost its connection")
    agent.wait_for("running", link(here))
    assert not [status for status in agent.history(*link(here)) if status == "invalid"]
    there.publish(["n"])
    assert here.take(1) == ["n"]


def test_links_that_begin_after_a_change_share_connections_with_those_before(
    agent_of: AgentOf, here: Site, there: Site, tmp_path: Path, name: Callable[[str], str]
) -> None:
    here.exchange().queue("k")
    admin, user, password = there.node.admin, name(USER), tmp_path / "password"
    admin.user(user, "first-password")
    admin.permissions(there.vhost, user)
    replace(password, "first-password\n")
    uri = there.node.uri(there.vhost, user, "PASSWORD").replace("PASSWORD", f"${{file:{password}}}")
    agent = agent_of(here.node).write({here.vhost: origin(uri)}).start()
    agent.wait_for("running", link(here))

    def listed() -> set[str]:
        return {str(each["name"]) for each in connections_of(admin, user)}

    before = eventually(lambda: listed() if len(listed()) == 2 else None, what="both of its connections are listed")
    admin.user(user, "second-password")
    replace(password, "second-password\n")
    wait_read(agent, 2)
    here.exchange("fed.another")
    agent.wait_for("running", (here.vhost, "fed.another", "origin"))
    assert listed() == before


def test_a_link_logs_in_with_its_certificate(
    agent_of: AgentOf, here: Site, tls_broker: TlsBroker, site_on: SiteOn, name: Callable[[str], str]
) -> None:
    there = site_on(tls_broker.node)
    user = name("certified")
    tls_broker.node.admin.user(user, "")
    tls_broker.node.admin.permissions(there.vhost, user)
    here.exchange().queue("k")
    query = f"{tls_broker.trust}&{tls_broker.show(user)}&auth_mechanism=external"
    uri = f"amqps://localhost:{tls_broker.amqps_port}/{there.vhost}?{query}"
    agent = agent_of(here.node).write({here.vhost: origin(uri)}).start()
    agent.wait_for("running", link(here))
    there.wait_bound("k")
    there.publish(["m"])
    assert here.take(1) == ["m"]
    eventually(lambda: connections_of(tls_broker.node.admin, user), what=f"{user} is connected")


def test_a_certificate_that_no_user_is_named_after_is_refused(
    agent_of: AgentOf, here: Site, tls_broker: TlsBroker, site_on: SiteOn, name: Callable[[str], str]
) -> None:
    there, user = site_on(tls_broker.node), name("nobody")
    here.exchange()
    query = f"{tls_broker.trust}&{tls_broker.show(user)}&auth_mechanism=external"
    uri = f"amqps://localhost:{tls_broker.amqps_port}/{there.vhost}?{query}"
    agent = agent_of(here.node).write({here.vhost: origin(uri)}).start()
    agent.wait_for("invalid", link(here))
    assert "certificate" in agent.links()[link(here)]["error"]
