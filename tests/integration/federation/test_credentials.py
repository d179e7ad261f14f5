"""Passwords and tokens that change while links run, and certificates: logins, and when they end."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from agent.core.addresses.expiry import certificate_expiry
from tests.integration.conftest import TlsBroker
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import BY_EVENTS, HURRIED, Agent, Named
from tests.integration.federation.sites import Site, X, policies
from tests.integration.federation.test_api import ask
from tests.lab.admin import Admin, AdminError
from tests.lab.tokens import TokenBroker
from tests.lab.waiting import eventually

LIFE: Final = 20.0
USER: Final = "renewed"
SAMPLE: Final = re.compile(r"^federation_agent_certificate_expiry_timestamp_seconds\{(.*)\} (\S+)$", re.MULTILINE)
DAY: Final = 86_400


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


@pytest.fixture
def token_files(token_broker: TokenBroker, tmp_path: Path) -> tuple[Path, Path]:
    """Of the downstream and of the upstream."""
    files = tmp_path / "downstream-token", tmp_path / "upstream-token"
    for each in files:
        replace(each, token_broker.token(LIFE))
    return files


def by_token(
    agent_of: AgentOf, broker: TokenBroker, site_on: SiteOn, files: tuple[Path, Path]
) -> tuple[Agent, Site, Site]:
    """An agent that logs in at both ends with tokens."""
    here, there = site_on(broker.node), site_on(broker.node)
    here.exchange().queue("k")
    down, up = (f"${{file:{each}}}" for each in files)
    agent = agent_of(here.node, uri=broker.uri(down)).write({here.vhost: origin(broker.uri(up, there.vhost))})
    agent.start(BY_EVENTS).wait_for("running", link(here))
    there.wait_bound("k")
    return agent, here, there


def test_a_token_is_renewed_on_the_connections_that_are_open_and_one_that_is_refused_is_shown(
    agent_of: AgentOf, token_broker: TokenBroker, site_on: SiteOn, token_files: tuple[Path, Path]
) -> None:
    """What is refused costs one reconnect."""
    for each in token_files:
        replace(each, token_broker.token(300))
    agent, here, there = by_token(agent_of, token_broker, site_on, token_files)
    _, of_upstream = token_files
    forged = token_broker.token(300)[:-9] + "forged-it"
    replace(of_upstream, forged)
    agent.reload().wait_for("invalid", link(here))
    assert forged not in agent.log.read_text()
    assert any("was refused" in str(each["reason"]) for each in agent.wait_logged("token not renewed"))
    replace(of_upstream, token_broker.token(300))
    agent.reload().wait_for("running", link(here))

    def renewed(where: str) -> int:
        return sum(where in str(each["broker"]) for each in agent.logged("token renewed"))

    ran, before = agent.history(*link(here)), renewed("upstream origin")

    def all_have_another(times: int) -> bool:
        """Upstream the connection that asks, and that of messages; downstream that of messages, and that of events."""
        return renewed("upstream origin") >= before + 2 * times and renewed("downstream") >= 2 * times

    for times in (1, 2):
        for each in token_files:
            replace(each, token_broker.token(600 * times))
        agent.reload()
        eventually(partial(all_have_another, times), what="all have another")
    here.bind("another")
    there.wait_bound("another", "k")  # an event reports it
    there.publish(["m"])
    assert here.take(1) == ["m"]
    assert agent.history(*link(here)) == ran


@pytest.mark.thorough
def test_a_link_outlives_the_tokens_that_it_began_with(
    agent_of: AgentOf, token_broker: TokenBroker, site_on: SiteOn, token_files: tuple[Path, Path]
) -> None:
    """A broker refuses whatever is asked with a token that has expired."""
    ends = time.monotonic() + LIFE
    agent, here, there = by_token(agent_of, token_broker, site_on, token_files)
    for each in token_files:
        replace(each, token_broker.token(300))
    agent.wait_logged("token renewed", 4)
    time.sleep(max(0.0, ends + 1 - time.monotonic()))
    here.bind("another")
    there.wait_bound("another", "k")
    there.publish(["m"])
    assert here.take(1) == ["m"]
    assert agent.history(*link(here)) == ["running"]


def test_a_password_is_read_again_and_used_for_the_next_connection(
    agent_of: AgentOf, here: Site, there: Site, tmp_path: Path, name: Callable[[str], str]
) -> None:
    """What is connected stays so, and is shared with links that begin after the change."""
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
    agent.reload()
    wait_read(agent, 2)
    there.publish(["m"])
    assert here.take(1) == ["m"]
    here.exchange("fed.another")
    agent.wait_for("running", (here.vhost, "fed.another", "origin"))
    assert listed() == before
    assert agent.history(*link(here)) == ["running"]
    for each in before or ():
        with suppress(AdminError):  # without one of them the agent closes the others
            admin.delete("connections", each)
    eventually(lambda: len(agent.history(*link(here))) > 1, what="the link has lost its connection")
    agent.wait_for("running", link(here))
    assert not [status for status in agent.history(*link(here)) if status == "invalid"]
    there.publish(["n"])
    assert here.take(1) == ["n"]


def test_a_link_logs_in_with_its_certificate_and_metrics_tell_when_it_ends(
    agent_of: AgentOf, tls_broker: TlsBroker, site_on: SiteOn, name: Callable[[str], str]
) -> None:
    """Metrics tell it of the brokers' certificates, too. One that no user is named after is refused."""
    here, there, user = site_on(tls_broker.node), site_on(tls_broker.node), name("certified")
    tls_broker.node.admin.user(user, "unused")
    tls_broker.node.admin.permissions(there.vhost, user)
    here.exchange().queue("k")

    def shows(user: str) -> str:
        query = f"{tls_broker.trust}&{tls_broker.show(user)}&auth_mechanism=external"
        return f"amqps://localhost:{tls_broker.amqps_port}/{there.vhost}?{query}"

    definition = origin(shows(user))
    definition["upstreams"]["nobody"] = {"uri": shows(name("nobody")), "exchange": "other"}
    agent = agent_of(here.node, uri=tls_broker.amqps(tls_broker.trust)).write({here.vhost: definition}).start(HURRIED)
    agent.wait_for("running", link(here))
    there.wait_bound("k")
    there.publish(["m"])
    assert here.take(1) == ["m"]
    eventually(lambda: connections_of(tls_broker.node.admin, user), what=f"{user} is connected")
    refused = here.vhost, X, "nobody"
    agent.wait_for("invalid", refused)
    assert "certificate" in agent.links()[refused]["error"]

    upstream = "upstream", here.vhost, "origin"
    wanted = {(*upstream, "client"), (*upstream, "server"), ("downstream", "", "", "server")}
    ends = eventually(lambda: found if (found := expiries(agent)).keys() >= wanted else None, what="all are told") or {}
    client = tls_broker.authority.client(user).certfile.read_text()
    server = ssl.get_server_certificate(("localhost", tls_broker.amqps_port))
    of_client, of_server = (certificate_expiry(ssl.PEM_cert_to_DER_cert(each)) for each in (client, server))
    assert abs(ends[*upstream, "client"] - of_client) < DAY / 24
    assert ends[*upstream, "server"] == ends["downstream", "", "", "server"] == of_server
    assert of_server - time.time() < 2 * DAY


def expiries(agent: Agent) -> dict[tuple[str, ...], float]:
    """By the labels of their metrics."""
    found = SAMPLE.findall(ask(agent, "/metrics"))
    return {tuple(re.findall(r'="([^"]*)"', labels)): float(value) for labels, value in found}
