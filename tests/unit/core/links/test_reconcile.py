from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from agent.core.links.reconcile import DownstreamSeen, EndLink, RunLink, SharedQueues, reconcile
from agent.core.model import CleanupMode, Exchange, Link, LinkSettings, Queue, VhostState, native_link
from agent.core.rules.names import STANDBY
from tests.unit.core.some_links import exchange_link, queue_link, shovel_link

EXCHANGE, QUEUE, SHOVEL = exchange_link(), queue_link(), shovel_link()
THERE = VhostState(exchanges={"x": Exchange("x", "topic")}, queues={"x": Queue("x")})
NOTHING_THERE = VhostState()


@dataclass
class Runs:
    link: Link
    is_unwanted: bool = False
    may_be_removed: bool = True


def seen(state: VhostState = THERE, *native: Link, sees: bool = True) -> DownstreamSeen:
    return DownstreamSeen({"/": state}, frozenset(map(native_link, native)), lambda _: sees)


def found(wanted: list[Link], running: list[Runs], of: DownstreamSeen | None = None) -> list[RunLink | EndLink]:
    return list(reconcile({each.id: each for each in wanted}, {each.link.id: each for each in running}, of or seen()))


def ended(
    link: Link, of: DownstreamSeen | None = None, *, is_unwanted: bool = False, may_be_removed: bool = True
) -> EndLink:
    running = Runs(link, is_unwanted, may_be_removed)
    (end,) = found([], [running], of)
    assert isinstance(end, EndLink)
    return end


def test_links_end_before_others_begin() -> None:
    renamed = replace(EXCHANGE, id="1", upstream="renamed")
    assert found([renamed, SHOVEL], [Runs(EXCHANGE)]) == [
        EndLink(EXCHANGE.id, removes=False),  # the renamed one's queue is the same
        RunLink(renamed),
        RunLink(SHOVEL),
    ]


def test_only_another_definition_makes_a_link_start_again() -> None:
    other = replace(EXCHANGE, settings=LinkSettings(max_hops=2))
    policy = replace(EXCHANGE, policy="another")
    assert found([EXCHANGE], [Runs(EXCHANGE)]) == [RunLink(EXCHANGE)]
    assert found([policy], [Runs(EXCHANGE)]) == [RunLink(policy)]
    assert found([other], [Runs(EXCHANGE)]) == [RunLink(other, restarts=True)]


def test_a_link_of_the_native_plugin_is_known_as_such() -> None:
    assert found([EXCHANGE, QUEUE], [], seen(THERE, EXCHANGE)) == [RunLink(EXCHANGE, is_native=True), RunLink(QUEUE)]


def test_what_a_link_built_is_removed_unless_somebody_needs_it_or_nobody_can_tell() -> None:
    keeps = replace(EXCHANGE, settings=LinkSettings(resource_cleanup_mode=CleanupMode.NEVER))
    assert ended(EXCHANGE).removes
    assert not ended(keeps).removes
    assert not ended(QUEUE).removes
    assert not ended(SHOVEL).removes
    assert not ended(EXCHANGE, may_be_removed=False).removes
    assert not ended(EXCHANGE, seen(THERE, EXCHANGE)).removes, "the plugin runs it"
    assert not ended(EXCHANGE, seen(sees=False)).removes, "it may still be defined"
    failed_over, of_standby = replace(seen(), has_failed_over=True), replace(EXCHANGE, policy=STANDBY)
    assert not ended(of_standby, failed_over).removes, "its source is lost, and holds the rest"
    assert ended(of_standby).removes
    assert ended(EXCHANGE, failed_over).removes, "it is an operator's own, from the same source perhaps"


def test_a_deleted_object_is_told_from_a_deleted_definition() -> None:
    brief = replace(EXCHANGE, exchange=replace(EXCHANGE.exchange, auto_delete=True))
    assert not ended(EXCHANGE).object_is_deleted
    for link in (EXCHANGE, QUEUE):
        assert ended(link, seen(NOTHING_THERE)).object_is_deleted
        assert not ended(link, seen(NOTHING_THERE, sees=False)).object_is_deleted
        assert not ended(link, seen(NOTHING_THERE), is_unwanted=True).object_is_deleted, "it was shown before"
    assert not ended(brief, seen(NOTHING_THERE)).object_is_deleted, "the broker may have deleted it"
    assert not ended(SHOVEL, seen(NOTHING_THERE)).object_is_deleted


def test_a_link_that_has_gone_meanwhile_is_left_alone() -> None:
    running = {each.id: Runs(each) for each in (EXCHANGE, QUEUE, SHOVEL)}
    steps = reconcile({}, running, seen())
    next(steps)
    running.clear()
    assert list(steps) == []


IDS = st.sets(st.sampled_from("abcdef"))


@given(wanted=IDS, running=IDS, hops=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 2)))
def test_each_link_has_one_action_and_nothing_is_left_to_do_after_them(
    wanted: set[str], running: set[str], hops: Mapping[str, int]
) -> None:
    definitions: dict[str, Link] = {
        name: replace(EXCHANGE, id=name, name=name, settings=LinkSettings(max_hops=hops.get(name, 1)))
        for name in wanted
    }
    runs = {name: Runs(replace(EXCHANGE, id=name, name=name)) for name in running}
    done = list(reconcile(definitions, runs, seen()))
    of = [each.link.id if isinstance(each, RunLink) else each.link_id for each in done]
    assert sorted(of) == sorted(wanted | running)
    after = {each.link.id: Runs(each.link) for each in done if isinstance(each, RunLink)}
    assert list(reconcile(definitions, after, seen())) == [RunLink(each) for each in definitions.values()]


def test_only_exchange_links_have_a_queue_of_their_own_upstream() -> None:
    """A queue link consumes from a queue of users; one that is called as an exchange is another thing."""
    link = exchange_link()
    shared = SharedQueues([link, queue_link(), shovel_link()])
    assert shared.have_that_of(replace(link, id="1", upstream="renamed"))
    assert not shared.have_that_of(queue_link())
    assert not shared.have_that_of(shovel_link())
    assert not SharedQueues([queue_link()]).have_that_of(link)
