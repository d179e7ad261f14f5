from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.links.restarts import leads_elsewhere, needs_restart
from agent.core.model import ApplyTo, Choice, Exchange, Federation, Link, LinkSettings, Policy, Queue, QueueSource
from agent.errors import Place
from tests.unit.core.some_links import exchange_link, queue_link, shovel_link

POLICY = Policy("p", "x", ApplyTo.ALL, 0, Federation(Choice.SET, "all"), Place("broker"))
EXCHANGE, QUEUE, SHOVEL = exchange_link(), queue_link(), shovel_link()


@pytest.mark.parametrize(
    ("running", "wanted"),
    [
        (EXCHANGE, replace(EXCHANGE, policy="other", exchange=replace(EXCHANGE.exchange, policy=POLICY))),
        (QUEUE, replace(QUEUE, policy="other", queue=replace(QUEUE.queue, policy=POLICY))),
        (SHOVEL, replace(SHOVEL, shovel=replace(SHOVEL.shovel, place=Place("agent.yaml", 7, 1)))),
    ],
)
def test_who_asks_for_a_link_and_where_is_no_reason(running: Link, wanted: Link) -> None:
    assert running != wanted
    assert not needs_restart(running, wanted)


@pytest.mark.parametrize(
    ("running", "wanted"),
    [
        (EXCHANGE, replace(EXCHANGE, exchange=Exchange("x", "fanout"))),
        (EXCHANGE, replace(EXCHANGE, settings=LinkSettings(max_hops=2))),
        (EXCHANGE, replace(EXCHANGE, problem="it holds too much")),
        (QUEUE, replace(QUEUE, queue=Queue("x", durable=False))),
        (SHOVEL, replace(SHOVEL, shovel=replace(SHOVEL.shovel, source=QueueSource("r")))),
        (SHOVEL, replace(SHOVEL, uris=())),
    ],
)
def test_what_a_link_does_or_declares_is_one(running: Link, wanted: Link) -> None:
    assert needs_restart(running, wanted)


@pytest.mark.parametrize(
    ("former", "now", "elsewhere"),
    [
        (["amqp://a", "amqp://b"], ["amqp://b", "amqp://c"], False),
        (["amqp://a"], ["amqp://b"], True),
        ([], ["amqp://a"], True),
    ],
)
def test_a_link_leads_elsewhere_when_it_has_none_of_its_addresses_any_more(
    former: list[str], now: list[str], elsewhere: bool
) -> None:
    assert leads_elsewhere(former, now) is elsewhere
