"""Which consumers are links, from events and lists that are late."""

from __future__ import annotations

from typing import Any

from agent.amqp.broker_events import BrokerEvent
from agent.downstream.consumers import EXPECTED_FOR, LATE, Consumers
from agent.management.answers import ConsumerAnswer
from tests.unit.measures import calls_of, objects_of

BELOW = ['{<<"x-priority">>,signedint,-1}']
V, Q = "v", "q"


def event(tag: str, *, gone: bool = False, arguments: Any = BELOW, queue: str = Q, channel: str = "c") -> BrokerEvent:
    kind = "consumer.deleted" if gone else "consumer.created"
    fields = {"vhost": V, "queue": queue, "consumer_tag": tag, "arguments": arguments, "channel": channel}
    return BrokerEvent(kind, fields)


def closed(channel: str, consumers: int | None) -> BrokerEvent:
    """Brokers before 3.13 don't say how many consumers a channel had."""
    count = {} if consumers is None else {"consumer_count": consumers}
    return BrokerEvent("channel.closed", {"pid": channel} | count)


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
        for number in range(4_000):
            consumers.heard(event(f"t{number}", queue=f"reply{number}"), number)
            consumers.heard(event(f"t{number}", queue=f"reply{number}", gone=True), number / 100)
        assert objects_of(consumers) < 10_000


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
            consumers.hears(is_heard, 0)
    assert woken == [Q, "r", Q, "r"]


def test_consumers_of_a_vhost_are_known_before_its_queues_are_watched() -> None:
    consumers = Consumers()
    consumers.expect(V, 0)
    assert V in consumers.vhosts
    assert consumers.is_watched.is_set()
    assert consumers.must_read.is_set()
    consumers.read(V, listed("there"), 1)
    consumers.must_read.clear()
    with consumers.watching(V, Q, lambda: None):
        assert consumers.below_zero(V, Q) == 1
        assert not consumers.must_read.is_set()
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


class TestChannels:
    """Since 3.13 brokers don't report the end of consumers that end with their channel."""

    def test_what_was_on_a_closed_channel_has_gone(self) -> None:
        consumers, woken = Consumers(), []
        with consumers.watching(V, Q, lambda: woken.append(1)):
            consumers.read(V, listed("old"), 0)
            consumers.must_read.clear()
            consumers.heard(event("a"), 20)
            consumers.heard(event("b"), 20)
            consumers.heard(event("b", channel="other"), 20)  # of another link, whose upstream has the same name
            consumers.heard(event("user", arguments=[], channel="users"), 20)
            woken.clear()
            consumers.heard(closed("c", 2), 21)
            assert consumers.below_zero(V, Q) == 2
            assert woken
            woken.clear()
            consumers.heard(closed("users", 1), 22)
            assert consumers.below_zero(V, Q) == 2
            assert woken, "nobody consumes there any more, perhaps"
            consumers.heard(closed("other", 1), 23)
            assert consumers.below_zero(V, Q) == 1
            assert not consumers.must_read.is_set()

    def test_of_what_only_the_list_had_one_may_have_gone(self) -> None:
        consumers = Consumers()
        with consumers.watching(V, Q, lambda: None):
            consumers.read(V, listed("gone", "there"), 0)
            consumers.must_read.clear()
            consumers.heard(event("elsewhere", queue="reply", arguments=[], channel="program"), 20)
            consumers.heard(closed("program", 1), 20)
            consumers.heard(closed("idle", 0), 20)
            assert not consumers.must_read.is_set()
            consumers.heard(closed("unknown", 1), 20)
            assert consumers.must_read.is_set()
            assert consumers.below_zero(V, Q) == 2
            consumers.read(V, listed("there"), 21)
            assert consumers.below_zero(V, Q) == 1

    def test_one_that_comes_back_before_the_list_is_read_counts_once(self) -> None:
        consumers = Consumers()
        with consumers.watching(V, Q, lambda: None):
            consumers.read(V, listed("a", "b"), 0)
            consumers.heard(closed("unknown", 1), 20)
            consumers.heard(event("a"), 20)
            assert consumers.below_zero(V, Q) == 2
            consumers.read(V, listed("a", "b"), 20 + LATE)
            consumers.heard(event("b"), 20 + LATE)  # another one of the name, as the list has confirmed the first
            assert consumers.below_zero(V, Q) == 3

    def test_a_late_list_that_has_what_has_gone_settles_nothing(self) -> None:
        """It is read some milliseconds after the event, and may still have a consumer that ended with its channel."""
        consumers = Consumers()
        with consumers.watching(V, Q, lambda: None):
            consumers.read(V, listed("a", "b"), 0)
            consumers.heard(closed("unknown", 1), 20)
            consumers.read(V, listed("a", "b"), 20.02)
            consumers.heard(event("a"), 21)
            assert consumers.below_zero(V, Q) == 2
            consumers.heard(closed("unknown too", 1), 30)
            consumers.read(V, listed("a"), 30.02)  # so that was b
            consumers.heard(event("b"), 31)
            assert consumers.below_zero(V, Q) == 2

    def test_one_that_came_while_nobody_watched_is_known_by_its_channel(self) -> None:
        """As after every reconnect of a vhost's only link: the list has it then."""
        consumers = Consumers()
        with consumers.watching(V, Q, lambda: None):
            consumers.heard(event("first"), 0)
        consumers.heard(event("second", channel="other"), 1)
        with consumers.watching(V, Q, lambda: None):
            consumers.read(V, listed("first", "second"), 20)
            for number, tag in enumerate(("first", "second")):
                consumers.heard(closed("c" if tag == "first" else "other", 1), 20)
                assert consumers.below_zero(V, Q) == 1
                consumers.heard(event(tag, channel=f"new {number}"), 21)
                assert consumers.below_zero(V, Q) == 2

    def test_one_that_went_unheard_and_comes_back_counts_once(self) -> None:
        """An empty list proves nothing, so until another one is read it still counts."""
        consumers = Consumers()
        with consumers.watching(V, Q, lambda: None):
            consumers.hears(True, 0)
            consumers.read(V, listed("a"), 0)
            consumers.hears(False, 20)
            consumers.hears(True, 25)
            consumers.read(V, [], 25.02)
            consumers.heard(event("a"), 26)
            assert consumers.below_zero(V, Q) == 1

    def test_an_end_that_is_reported_twice_counts_once(self) -> None:
        """Of quorum queues brokers report both, in either order, and the consumer may be back before."""
        consumers = Consumers()
        with consumers.watching(V, Q, lambda: None):
            consumers.heard(event("a", channel="first"), 0)
            consumers.heard(closed("first", 1), 1)
            consumers.heard(event("a", channel="second"), 1)
            consumers.heard(event("a", gone=True, channel="first"), 1)
            consumers.read(V, [], 2)
            assert consumers.below_zero(V, Q) == 1
            consumers.heard(event("a", gone=True, channel="second"), 3)
            consumers.heard(closed("second", 1), 3)
            assert consumers.below_zero(V, Q) == 0

    def test_one_that_comes_beside_another_is_checked_once_the_list_cannot_be_late(self) -> None:
        """Nobody reports the end of what was connected to a node that is down: the first is the second, perhaps."""
        consumers = Consumers()
        with consumers.watching(V, Q, lambda: None):
            consumers.read(V, [], 0)
            consumers.heard(event("a"), 0)
            assert not consumers.must_check()
            consumers.heard(event("a", channel="by another node"), 20)
            assert consumers.must_check()
            consumers.read(V, listed("a"), 20 + LATE / 2)
            assert consumers.below_zero(V, Q) == 2
            assert consumers.must_check()
            consumers.read(V, listed("a"), 20 + LATE)
            assert consumers.below_zero(V, Q) == 1
            assert not consumers.must_check()

    def test_what_was_connected_to_a_node_that_is_down_has_gone(self) -> None:
        """Brokers since 3.13 list it for minutes, with nothing about its channel."""
        consumers = Consumers()
        with consumers.watching(V, Q, lambda: None):
            there, gone, unknown = listed("there", "gone", "unknown")
            there["channel_details"], gone["channel_details"] = {"node": "rabbit@a"}, {}
            consumers.read(V, [there, gone, unknown], 0)
            assert consumers.below_zero(V, Q) == 2
            consumers.read(V, [gone], 1)
            assert consumers.below_zero(V, Q) == 0

    def test_very_many_that_end_at_once_take_little_time(self) -> None:
        """All are handled in one turn of the loop, as far as the prefetch reaches."""
        consumers = Consumers()
        with consumers.watching(V, Q, lambda: None):
            consumers.read(V, listed(*map(str, range(100))), 0)
            first = calls_of(lambda: consumers.heard(closed("old", 1), 20))
            others = [closed(f"older {number}", 1) for number in range(99)]

            def end_all() -> None:
                for each in others:
                    consumers.heard(each, 20)

            assert calls_of(end_all) < 10 * first
            consumers.must_read.clear()
            consumers.heard(closed("one more", 1), 20.1)
            assert consumers.must_read.is_set(), "the list that is being read may not know it yet"
            consumers.read(V, listed(*map(str, range(100))), 20.2)
            consumers.heard(closed("and another one", 1), 40)
            consumers.heard(event("0"), 41)
            assert consumers.below_zero(V, Q) == 100

    def test_nothing_is_kept_of_what_was_not_heard(self) -> None:
        consumers = Consumers()
        with consumers.watching(V, Q, lambda: None):
            consumers.hears(True, 0)
            consumers.heard(event("a"), 0)
            consumers.hears(False, 1)
            consumers.hears(True, 2)
            consumers.read(V, listed("a"), 2 * LATE)
            consumers.heard(closed("c", 1), 3 * LATE)
            assert consumers.must_read.is_set()

    def test_no_memory_is_left(self) -> None:
        consumers = Consumers()
        with consumers.watching(V, Q, lambda: None):
            held = [objects_of(consumers)]
            for number in range(1_000):
                consumers.heard(event("a", channel=f"c{number}", arguments=BELOW if number % 2 else []), number)
                consumers.heard(event("a", channel=f"d{number}", queue="other"), number)
                consumers.heard(event("a", channel=f"d{number}", queue="other", gone=True), number)
                consumers.heard(closed(f"c{number}", 1), number)
                held.append(objects_of(consumers))
            assert held[-1] <= max(held[:4])
            consumers.heard(event("user", arguments=[]), 0)
        consumers.heard(event("a"), 0)
        consumers.heard(closed("c", 2), 1)
        assert objects_of(consumers) <= objects_of(Consumers()) + 2, "nobody watches the vhost any more"
