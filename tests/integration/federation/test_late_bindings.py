"""Bindings that are made while those of a new link are being read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hostile.api import HostileApi, Misbehaviour, hostile_api
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import BY_EVENTS
from tests.integration.federation.sites import Q, Site, federated

NEW = "fed.new"
EVENT_ARRIVES = 0.5


@pytest.mark.parametrize("arguments", [{}, {"n": 1}])
def test_a_binding_that_is_made_between_the_answer_and_the_link(
    agent_of: AgentOf, here: Site, there: Site, arguments: dict[str, Any]
) -> None:
    """The broker's answer lacks it, and its event comes before the link exists."""
    with hostile_api(here.node.management_url) as api:
        agent = agent_of(here.node, management_uri=api.uri).write({here.vhost: federated(there)})
        here.exchange().queue("k")
        agent.start(BY_EVENTS).wait_for("running", (here.vhost, "fed.x", "origin"))
        there.wait_bound("k")
        api.vhost = here.vhost
        api.misbehaviour = _answers_before_it_is_bound(api, here, arguments)
        here.exchange(NEW)
        agent.wait_for("running", (here.vhost, NEW, "origin"))
        there.wait_bound("late", exchange=NEW)


def _answers_before_it_is_bound(api: HostileApi, site: Site, arguments: dict[str, Any]) -> Misbehaviour:
    def answer() -> Iterator[bytes]:
        api.misbehaviour = None
        site.node.admin.bind(site.vhost, NEW, Q, "late", arguments=arguments)
        time.sleep(EVENT_ARRIVES)
        yield b"[]"

    return Misbehaviour(f"exchanges/{{vhost}}/{NEW}/bindings/source", answer)
