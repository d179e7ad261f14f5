"""Connections that are reset twenty times while messages pass: what is lost, and that nothing gets stuck.

FEDERATION_AGENT_RESET_MESSAGES sets how many messages there are.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.queue_links.scene import User, declare
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import DEADLINE, eventually

BrokerOn = Callable[..., Node]
ProxyTo = Callable[[Node | int], Proxy]
MESSAGES: Final = int(os.environ.get("FEDERATION_AGENT_RESET_MESSAGES", "1000"))
RESETS: Final = 20
PART: Final = MESSAGES // (RESETS + 5)
PATIENCE: Final = DEADLINE + MESSAGES / 200

pytestmark = pytest.mark.timeout(400 + 2 * PATIENCE)

log = logging.getLogger(__name__)


@pytest.fixture(params=[None, pytest.param("sid", marks=pytest.mark.versions)])
def downstream(request: pytest.FixtureRequest, site_on: SiteOn, broker_on: BrokerOn) -> Site:
    """On brokers of two releases."""
    return site_on(broker_on(request.param))


KEPT: Final = {"classic": "work.classic", "quorum": "work.quorum"}
LOSSY: Final = {"on-publish": "lossy.on-publish", "no-ack": "lossy.no-ack"}
NAMES: Final = (*KEPT.values(), *LOSSY.values())


def sections(uri: str) -> dict[str, Any]:
    """An upstream for each mode, and the queues that are federated with it."""
    upstreams = {mode: {"uri": uri, "reconnect-delay": 0.5, "ack-mode": mode} for mode in ("on-confirm", *LOSSY)}
    patterns = {"on-confirm": "^work"} | LOSSY
    policies = {
        mode: {"pattern": pattern, "apply-to": "queues", "definition": {"federation-upstream": mode}}
        for mode, pattern in patterns.items()
    }
    return {"upstreams": upstreams, "policies": policies}


def test_messages_and_links_under_resets(agent_of: AgentOf, proxy_to: ProxyTo, downstream: Site, there: Site) -> None:
    """Of queues of both types nothing is lost. Modes that may lose messages go on, and nothing is stuck upstream."""
    here, bodies = downstream, numbered(MESSAGES)
    for kind, name in KEPT.items():
        declare(here, there, name=name, arguments={"x-queue-type": kind})
    declare(here, there, name=LOSSY["on-publish"])
    declare(here, there, name=LOSSY["no-ack"])
    up, down = proxies = [proxy_to(there.node), proxy_to(here.node)]
    agent = agent_of(here.node, uri=here.node.uri(port=down.port))
    agent.write({here.vhost: sections(there.node.uri(there.vhost, port=up.port))}).start()
    agent.wait_running(len(NAMES))

    def publish(part: int, *to: str) -> None:
        for name in to:
            there.publish(bodies[part * PART : (part + 1) * PART], name, exchange="")

    with ExitStack() as entered:
        users = {name: entered.enter_context(User(here, name, prefetch=100)) for name in NAMES}
        for part in range(5):
            publish(part, *KEPT.values())
        for number in range(RESETS):
            publish(5 + number, *KEPT.values())
            publish(number, *LOSSY.values())
            wait_all(users, (number + 1) * PART)
            proxies[number % 2].cut()
        come_to_rest(there, users, bodies)
    assert agent.logged("unexpected error") == []


def wait_all(users: Mapping[str, User], count: int) -> None:
    for name in KEPT.values():
        eventually(lambda name=name: len(set(users[name].taken)) >= count, PATIENCE, what=f"{count} of {name} came")  # type: ignore[misc]


def come_to_rest(there: Site, users: Mapping[str, User], bodies: list[str]) -> None:
    def all_came() -> bool:
        return all(set(users[name].taken) == set(bodies) for name in KEPT.values())

    def passes() -> bool:
        going = [name for name in LOSSY.values() if "last" not in users[name].taken]
        for name in going:
            there.publish(["last"], name, exchange="")  # one may go with a session that hasn't noticed its end
        return not going

    eventually(all_came, PATIENCE, what="all have come")
    eventually(passes, PATIENCE, what="messages pass")
    # What was not acknowledged when the last connection was cut comes once more.
    eventually(lambda: not any(depth(there.uri, name) for name in NAMES), PATIENCE, what="nothing is left")
    for name, user in users.items():
        log.info("%s: %d came, of %d", name, len(user.taken), len(bodies))
    for name in KEPT.values():
        assert len(users[name].taken) < len(bodies) + RESETS * 6 * PART, "only what was on its way comes again"
