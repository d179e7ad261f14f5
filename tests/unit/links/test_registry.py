from __future__ import annotations

from dataclasses import replace

import pytest

from agent.amqp.data.splice import Counts
from agent.core.model import ExchangeLink
from agent.links.brokers import Brokers
from agent.links.exchange.link import ExchangeLinks, RunnableExchangeLink
from agent.links.queue.link import QueueLinks, RunnableQueueLink
from agent.links.registry import KINDS, Kinds, Registered, SharedQueues
from tests.unit.core.some_links import exchange_link, queue_link, shovel_link


def brokers() -> Brokers:
    return Brokers((), "here", stall_after=30)


def test_a_link_is_run_by_its_kind() -> None:
    made = Kinds(brokers()).runnable(exchange_link(), Counts(), lambda: None)
    assert isinstance(made, RunnableExchangeLink)


def test_a_queue_link_is_run_and_nothing_of_it_is_removed() -> None:
    link = queue_link()
    made = Kinds(brokers()).runnable(link, Counts(), lambda: None)
    assert isinstance(made, RunnableQueueLink)
    assert not link.cleans_up
    former = RunnableQueueLink(link, QueueLinks(brokers()), Counts())
    former.memory.path.prefetch = 77
    made.inherit(former)
    assert made.memory.path.prefetch == 77


def test_a_kind_is_registered_under_the_kind_of_its_links() -> None:
    assert {kind: registered.links.kind for kind, registered in KINDS.items()} == {kind: kind for kind in KINDS}
    kind = Registered(ExchangeLink, ExchangeLinks).for_agent(brokers())
    with pytest.raises(TypeError, match="registered as another kind than queue"):
        kind.runnable(queue_link(), Counts(), lambda: None)


def test_only_exchange_links_have_a_queue_of_their_own_upstream() -> None:
    """A queue link consumes from a queue of users; one that is called as an exchange is another thing."""
    link = exchange_link()
    shared = SharedQueues([link, queue_link(), shovel_link()])
    assert shared.have_that_of(replace(link, id="1", upstream="renamed"))
    assert not shared.have_that_of(queue_link())
    assert not shared.have_that_of(shovel_link())
    assert not SharedQueues([queue_link()]).have_that_of(link)
