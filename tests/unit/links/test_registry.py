from __future__ import annotations

from agent.amqp.data.splice import Counts
from agent.core.model import LinkKind
from agent.links.brokers import Brokers
from agent.links.exchange.link import RunnableExchangeLink
from agent.links.queue.link import RunnableQueueLink
from agent.links.registry import KINDS, Kinds
from tests.unit.core.some_links import exchange_link, queue_link, shovel_link


def brokers() -> Brokers:
    return Brokers((), "here", stall_after=30)


def test_a_link_is_run_by_its_kind() -> None:
    link = exchange_link()
    made = Kinds(brokers()).of(link).runnable(link, Counts(), lambda: None)
    assert isinstance(made, RunnableExchangeLink)


def test_a_queue_link_is_run_and_nothing_of_it_is_removed() -> None:
    link = queue_link()
    kind = Kinds(brokers()).of(link)
    made, former = (kind.runnable(link, Counts(), lambda: None) for _ in range(2))
    assert isinstance(made, RunnableQueueLink)
    assert not link.cleans_up
    assert made.cleanup is None
    former.path.prefetch = 77
    made.inherit(former)
    assert made.path.prefetch == 77


def test_each_kind_of_link_is_registered_and_runs_its_own() -> None:
    assert set(KINDS) == set(LinkKind)
    for link in (exchange_link(), queue_link(), shovel_link()):
        assert Kinds(brokers()).of(link).runnable(link, Counts(), lambda: None).link is link
