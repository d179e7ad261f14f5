"""Which consumers are links, from events and lists that are late."""

from __future__ import annotations

from typing import Any

from agent.core.broker_events import BrokerEvent
from agent.downstream.consumers import EXPECTED_FOR, LATE, Consumers
from agent.management.answers import ConsumerAnswer

BELOW = ['{<<"x-priority">>,signedint,-1}']
V, Q = "v", "q"


def event(tag: str, *, gone: bool = False, arguments: Any = BELOW, queue: str = Q) -> BrokerEvent:
    kind = "consumer.deleted" if gone else "consumer.created"
    return BrokerEvent(kind, {"vhost": V, "queue": queue, "consumer_tag": tag, "arguments": arguments})


def listed(*tags: str, priority: Any = -1) -> list[ConsumerAnswer]:
    return [{"queue": {"name": Q}, "consumer_tag": tag, "arguments": {"x-priority": priority}} for tag in tags]


def test_events_and_lists() -> None:
    consumers, woken = Consumers(), []
    with consumers.watching(V, Q, lambda: woken.append(1)):
        assert consumers.below_zero(V, Q) is None
        consumers.heard(event("early"), 0)
        assert consumers.below_zero(V, Q) is None
        consumers.read(V, listed("there", "early"), 1)
        assert consumers.below_zero(V, Q) == 2
        assert len(woken) == 2
        consumers.heard(event("b"), 2)
        consumers.heard(event("user", arguments=[]), 2)
        consumers.heard(event("first", arguments=['{<<"x-priority">>,long,5}']), 2)
        assert consumers.below_zero(V, Q) == 3
        assert len(woken) == 5
        consumers.read(V, listed("there", "early"), 3)  # it is late, and lacks the new one
        assert consumers.below_zero(V, Q) == 3
        consumers.heard(event("there", gone=True), 4)
        consumers.read(V, listed("there", "early", "b"), 5)  # it still has the old one
        assert consumers.below_zero(V, Q) == 2
        consumers.read(V, listed("b"), 6 + 2 * LATE)  # an end that no event reported
        assert consumers.below_zero(V, Q) == 1
    assert not consumers.vhosts
    assert consumers.below_zero(V, Q) is None


def test_a_list_that_cannot_be_had_or_is_empty_changes_nothing() -> None:
    consumers = Consumers()
    with consumers.watching(V, Q, lambda: None):
        consumers.read(V, None, 0)
        assert consumers.below_zero(V, Q) == 0
        consumers.heard(event("a"), 1)
        consumers.heard(event("a"), 1)  # of another link, whose upstream has the same name
        consumers.read(V, [], 100)
        assert consumers.below_zero(V, Q) == 2
        consumers.heard(event("a", gone=True), 101)
        assert consumers.below_zero(V, Q) == 1


def test_consumers_that_went_take_no_memory() -> None:
    consumers = Consumers()
    with consumers.watching(V, Q, lambda: None):
        for number in range(10_000):
            consumers.heard(event(f"t{number}", queue=f"reply{number}"), number)
            consumers.heard(event(f"t{number}", queue=f"reply{number}", gone=True), number / 100)
        assert len(consumers._touched[V]) <= 2_001
        assert not consumers._known[V]


def test_arguments_of_any_shape() -> None:
    consumers = Consumers()
    with consumers.watching(V, Q, lambda: None):
        consumers.read(V, listed("a", priority="-1") + listed("b", priority=None) + listed("c", priority=-2.0), 0)
        assert consumers.below_zero(V, Q) == 1
        shapes: tuple[Any, ...] = (None, "x", {"x-priority": []}, [1, None, '{<<"x-priority">>,long,'], ["x" * 10_000])
        for arguments in shapes:
            consumers.heard(event("d", arguments=arguments), 1)
        assert consumers.below_zero(V, Q) == 1


def test_all_look_when_events_begin_and_end() -> None:
    consumers, woken = Consumers(), []
    with consumers.watching(V, Q, lambda: woken.append(Q)), consumers.watching(V, "r", lambda: woken.append("r")):
        for is_heard in (True, True, False):
            consumers.hears(is_heard)
    assert woken == [Q, "r", Q, "r"]


def test_consumers_of_a_vhost_are_known_before_its_queues_are_watched() -> None:
    consumers = Consumers()
    consumers.expect(V, 0)
    assert V in consumers.vhosts
    assert consumers.is_watched.is_set()
    assert consumers.has_new_vhost.is_set()
    consumers.read(V, listed("there"), 1)
    consumers.has_new_vhost.clear()
    with consumers.watching(V, Q, lambda: None):
        assert consumers.below_zero(V, Q) == 1
        assert not consumers.has_new_vhost.is_set()
        consumers.expect(V, 2)
        consumers.forget_unwatched(1_000)
        assert consumers.below_zero(V, Q) == 1
    assert not consumers.vhosts
    assert consumers.below_zero(V, Q) is None


def test_what_is_expected_and_never_watched_is_forgotten() -> None:
    consumers = Consumers()
    consumers.expect(V, 0)
    consumers.read(V, listed("there"), 1)
    consumers.forget_unwatched(EXPECTED_FOR - 1)
    assert consumers.below_zero(V, Q) == 1
    consumers.forget_unwatched(EXPECTED_FOR)
    assert not consumers.vhosts
    assert consumers.below_zero(V, Q) is None


def test_an_end_counts_also_for_queues_that_nobody_watched_then() -> None:
    """The list that is known of another queue of the vhost may be old."""
    consumers = Consumers()
    with consumers.watching(V, "other", lambda: None):
        consumers.read(V, listed("there"), 0)
        consumers.heard(event("there", gone=True), 20)
        with consumers.watching(V, Q, lambda: None):
            assert consumers.below_zero(V, Q) == 0


def test_a_link_that_consumes_before_the_queue_is_watched_is_no_user() -> None:
    consumers = Consumers()
    with consumers.watching(V, "other", lambda: None):
        consumers.read(V, [], 0)
        consumers.heard(event("link"), 20)
        consumers.heard(event("user", arguments=[]), 20)
        with consumers.watching(V, Q, lambda: None):
            assert consumers.below_zero(V, Q) == 1
