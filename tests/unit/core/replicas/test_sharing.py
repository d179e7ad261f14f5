"""One replica's view of its group: which links it runs, takes and gives up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from agent.core.links.lifecycle import Pause
from agent.core.model import LinkKind
from agent.core.replicas.messages import Report
from agent.core.replicas.sharing import (
    AGAIN,
    LEASE,
    SETTLED,
    SILENCE,
    STRANGE_FOR,
    SURELY_ENDED,
    TRIED_FOR,
    UNDECIDED_FOR,
    Elsewhere,
    Sharing,
)
from agent.core.replicas.slots import SLOTS, Held, Token
from tests.unit.core.some_links import exchange_link

LATE = 100.0
WALL = 1_000_000.0
KIND = LinkKind.EXCHANGE
PAUSE = Pause("ann", 1.0, "a new disk")


def link(slot: int) -> str:
    return f"{slot:08x}"


def ids(*slots: int) -> list[str]:
    """Of one link in each of these slots."""
    return [link(slot) for slot in slots]


def held(token: Token | None = None) -> Held:
    return Held(token or Token(), 1, 0.0)


def sharing(*slots: int, of: Iterable[int] = ()) -> Sharing:
    """It has been leased for long, knows a link in each slot of `slots`, and holds those of `of`."""
    found = Sharing("us")
    found.follow([replace(exchange_link(), id=each) for each in ids(*slots)], 0.0)
    found.begin(0.0)
    found.held = {slot: held() for slot in of}
    return found


def report(*slots: int, of: Iterable[int] = (), replica: str = "them") -> Report:
    return Report(replica, f"name of {replica}", frozenset(of), frozenset(ids(*slots)))


def test_what_is_held_runs_here() -> None:
    assert sharing(1, of=[1]).verdict(link(1), KIND, LATE) is True


def test_who_holds_all_and_waits_for_nobody_has_nothing_that_time_decides() -> None:
    waiting = sharing(of=range(SLOTS))
    waiting.held[3].waits_for, waiting.held[3].taken_at = "another", 7.0
    found = sharing(of=range(SLOTS)), sharing(of=range(SLOTS - 1)), waiting
    assert [each.holds_all(8.0) for each in found] == [True, False, False]
    assert waiting.holds_all(7.0 + SURELY_ENDED + UNDECIDED_FOR)


def test_what_another_holds_runs_there() -> None:
    found = sharing(1)
    assert found.hear(report(1, of=[1]), 1.0)
    assert found.verdict(link(1), KIND, LATE) == Elsewhere("agent name of them runs this link", "name of them")


def test_at_first_nobody_knows() -> None:
    found = sharing(1)
    assert found.verdict(link(1), KIND, UNDECIDED_FOR - 1) is None
    found.listen(may_publish=False, now=UNDECIDED_FOR + 1)
    assert isinstance(found.verdict(link(1), KIND, UNDECIDED_FOR + 1), Elsewhere)


def test_who_could_not_report_is_not_missed() -> None:
    """An alarm of the downstream: nobody can publish, and afterwards reports take a moment."""
    found = sharing(1, 2)
    found.hear(report(1, of=[1]), 10.0)
    for now in range(10, 10 + 3 * int(SILENCE)):
        assert not found.listen(may_publish=False, now=now)
    assert found.listen(may_publish=True, now=now + 0.25), "the others are to be asked"
    assert not found.listen(may_publish=True, now=now + 0.5)
    assert not found.expire(now + 0.5)
    assert isinstance(found.verdict(link(1), KIND, now + 0.5), Elsewhere)
    assert isinstance(found.verdict(link(2), KIND, now + 0.5), Elsewhere), "another one may hold it"
    assert not found.hears_others(now + 0.5)
    assert found.hears_others(now + UNDECIDED_FOR)
    assert found.expire(now + SILENCE + 1), "who is silent from then on is gone"


def test_one_that_is_alone_runs_what_the_broker_gives_to_nobody() -> None:
    found = sharing(1)
    assert found.verdict(link(1), KIND, UNDECIDED_FOR + 1) is True
    found.hear(report(1), 0.0)
    assert isinstance(found.verdict(link(1), KIND, UNDECIDED_FOR + 1), Elsewhere)


def test_what_is_handed_over_runs_here_no_more() -> None:
    found = sharing(1, of=[1])
    found.held[1].is_leaving = True
    assert isinstance(found.verdict(link(1), KIND, LATE), Elsewhere)
    assert found.shown == frozenset()


def test_a_link_that_the_holder_does_not_know_runs_with_who_knows_it() -> None:
    found = sharing(1, 2)
    found.hear(report(2, of=[1, 2]), 0.0)
    assert isinstance(found.verdict(link(1), KIND, STRANGE_FOR - 1), Elsewhere), "it may have been defined just now"
    assert found.verdict(link(1), KIND, STRANGE_FOR + 1) is True


def test_agents_with_wholly_different_links_do_not_wait_for_each_other() -> None:
    found = sharing(1)
    found.hear(report(2, of=[1, 2]), 0.0)
    assert found.verdict(link(1), KIND, 0.0) is True


@pytest.mark.parametrize("kind", [LinkKind.QUEUE, LinkKind.SHOVEL])
def test_a_holder_without_links_may_be_about_to_learn_them(kind: LinkKind) -> None:
    """Both have got their first link at once: brokers would let both consume."""
    found = sharing(1)
    found.hear(report(of=[1]), 0.0)
    assert isinstance(found.verdict(link(1), kind, STRANGE_FOR - 1), Elsewhere)
    assert found.verdict(link(1), kind, STRANGE_FOR + 1) is True
    assert found.verdict(link(1), LinkKind.EXCHANGE, 0.0) is True, "a second consumer would be refused"


def test_only_one_of_those_that_know_a_link_runs_it_for_its_holder() -> None:
    runs = []
    for ours, theirs in (("us", "them"), ("them", "us")):
        found = replace(sharing(1), replica=ours)
        found.hear(report(2, of=[1], replica="holder"), 0.0)
        found.hear(report(1, of=[], replica=theirs), 0.0)
        runs.append(found.verdict(link(1), KIND, LATE))
    assert sorted(isinstance(each, Elsewhere) for each in runs) == [False, True]


class TestWithoutLease:
    def test_one_that_is_alone_goes_on_with_what_it_held(self) -> None:
        found = sharing(1, 2, of=[1])
        assert not found.lose()
        assert found.verdict(link(1), LinkKind.SHOVEL, LATE) is True
        assert found.verdict(link(2), KIND, LATE) is True, "nor does anything else stop"

    def test_it_lets_go_of_what_it_does_not_get_again(self) -> None:
        found = sharing(1, of=[1])
        found.listen(may_publish=False, now=LATE + UNDECIDED_FOR + 1)
        found.lose()
        found.begin(LATE)
        assert not found.forget_kept(LATE + UNDECIDED_FOR)
        assert found.verdict(link(1), KIND, LATE) is True
        assert found.forget_kept(LATE + UNDECIDED_FOR + 1)
        assert found.verdict(link(1), KIND, LATE + UNDECIDED_FOR + 1) is not True

    def test_others_may_run_what_it_held(self) -> None:
        found = sharing(1, of=[1])
        found.hear(report(1), 0.0)
        assert found.lose()
        assert isinstance(found.verdict(link(1), KIND, LATE), Elsewhere), "it must not connect again before it may"

    @pytest.mark.parametrize("kind", LinkKind)
    def test_what_fails_with_the_lease_shows_why(self, kind: LinkKind) -> None:
        found = sharing(1, 2, of=[1])
        found.hear(report(1, 2, of=[2]), 0.0)
        found.lose()
        found.failure = "the broker is down"
        assert isinstance(found.verdict(link(2), kind, LATE), Elsewhere), (
            "another may run it, or know that it is paused"
        )
        verdict = found.verdict(link(1), kind, LATE)
        if kind is LinkKind.EXCHANGE:
            assert verdict is True, "its consumer is exclusive, whoever else runs it"
        else:
            assert isinstance(verdict, Elsewhere)
            assert "the broker is down" in verdict.reason
            assert not verdict.is_served

    @pytest.mark.parametrize("could_hear", [True, False])
    def test_one_that_could_hear_nobody_yet_is_not_alone_for_sure(self, could_hear: bool) -> None:
        """During an alarm nobody can report, and it may have begun in one."""
        found = sharing(1)
        found.listen(may_publish=could_hear, now=UNDECIDED_FOR + 1)
        found.lose()
        found.failure = "the broker is down"
        assert found.verdict(link(1), LinkKind.EXCHANGE, LATE) is True, "a second consumer would be refused"
        assert (found.verdict(link(1), LinkKind.SHOVEL, LATE) is True) is could_hear

    def test_where_leases_are_refused_it_runs_all(self) -> None:
        found = Sharing("us", refusal="not permitted")
        assert found.verdict(link(1), LinkKind.SHOVEL, 0.0) is True


class TestTakes:
    def test_everything_while_it_is_alone(self) -> None:
        found = sharing(1)
        assert found.take({slot: held() for slot in range(SLOTS)}, 0.0, WALL) == []
        assert len(found.held) == SLOTS

    def test_its_share_of_what_a_dead_one_held(self) -> None:
        found = sharing(*range(6), of=[0])
        found.hear(report(*range(6), of=[1], replica="other"), 0.0)
        found.hear(report(*range(6), of=[2, 3, 4, 5], replica="dead"), 0.0)
        passed = found.take({slot: held() for slot in (2, 3, 4, 5)}, 1.0, WALL)
        assert len(found.held) == 3
        assert len(passed) == 2
        assert found.others.able.keys() == {"other"}

    def test_what_comes_back_after_it_was_passed_on(self) -> None:
        found = sharing(0, 1, of=[0])
        found.hear(report(0, 1), 0.0)
        assert found.take({1: held()}, 1.0, WALL)
        assert not found.take({1: held()}, 1.0 + AGAIN / 2, WALL)
        assert 1 in found.held

    def test_what_was_given_up_only_where_it_has_the_least(self) -> None:
        found = sharing(0, 1, 2, of=[0])
        found.hear(report(0, 1, 2, of=[1]), 0.0)
        assert not found.take({2: held()}, 1.0, WALL)
        found = sharing(0, 1, 2, of=[0])
        found.hear(report(0, 1, 2), 0.0)
        assert found.take({2: held()}, 1.0, WALL)

    def test_nothing_that_it_could_not_run_a_moment_ago(self) -> None:
        token = Token(1, tried={"us": WALL - 1})
        found = sharing(0)
        found.hear(report(0), 0.0)
        assert found.take({0: held(token)}, 1.0, WALL)
        found = sharing(0)
        found.hear(report(0), 0.0)
        assert not found.take({0: held(token)}, 1.0, WALL + TRIED_FOR)


class TestGivesUp:
    def test_nothing_before_others_have_reported_what_they_took(self) -> None:
        found = sharing(0, 1, of=[0, 1])
        found.hear(report(0, 1), 0.0)
        assert found.surplus(SETTLED / 2, WALL) == []
        assert found.surplus(SETTLED, WALL) == [0]

    def test_only_the_one_with_the_most(self) -> None:
        found = sharing(*range(7), of=[0, 1])
        found.hear(report(*range(7), of=[2, 3, 4, 5, 6], replica="most"), 0.0)
        found.hear(report(*range(7), replica="new"), 0.0)
        assert found.surplus(LATE, WALL) == []

    def test_slots_without_links_at_once(self) -> None:
        found = sharing(of=range(SLOTS))
        found.hear(report(), 0.0)
        assert len(found.give(found.needless(LATE), LATE)) == SLOTS // 2
        assert len(found.held) == SLOTS // 2

    def test_what_it_cannot_run_until_all_others_have_tried(self) -> None:
        found = sharing(0, of=[0])
        assert found.tried(0, WALL) is None, "there is nobody else"
        found.hear(report(0), 0.0)
        assert found.tried(0, WALL) == {"us": WALL}
        found.held[0] = held(Token(1, tried={"them": WALL - 1}))
        assert found.tried(0, WALL) is None
        assert found.tried(0, WALL + TRIED_FOR) == {"us": WALL + TRIED_FOR}


def test_what_another_holds_runs_there_although_it_ran_here_before() -> None:
    found = sharing(1, of=[1])
    found.lose()
    found.begin(LATE)
    found.hear(report(1, of=[1]), LATE)
    assert isinstance(found.verdict(link(1), KIND, LATE), Elsewhere)


def test_slots_that_others_could_not_run_stay_where_they_are() -> None:
    found = sharing(0, 1, 2, 3)
    found.held = {slot: held(Token(1, tried={"them": WALL})) for slot in range(4)}
    found.hear(report(0, 1, 2, 3), 0.0)
    assert found.surplus(LATE, WALL) == []
    assert len(found.surplus(LATE, WALL + TRIED_FOR)) == 2


def test_a_slot_that_another_could_not_run_is_taken_whatever_the_shares() -> None:
    found = sharing(0, 1, of=[0])
    found.hear(report(0, 1), 0.0)
    assert not found.take({1: held(Token(1, tried={"them": WALL}))}, 1.0, WALL)


class TestHeld:
    def test_of_several_tokens_the_latest_counts(self) -> None:
        found = held()
        assert found.take(2, Token(5, paused={link(0): PAUSE})) == 1, "the former one isn't needed any more"
        assert found.token.paused == {link(0): PAUSE}
        assert found.take(3, Token(4)) == 3, "nor is one that is older"

    def test_two_changes_in_a_row_are_both_remembered(self) -> None:
        """Before the first of their tokens has come back."""
        found = held()
        first = found.renew(1.0, found.token.with_paused(link(0), PAUSE))
        second = found.renew(2.0, found.token.with_paused(link(1), PAUSE))
        assert (first.number, second.number) == (1, 2)
        assert found.take(2, first) == 1
        assert found.token == second
        assert found.take(3, second) == 2
        assert found.renew(3.0).paused.keys() == {link(0), link(1)}
        assert found.renew(4.0, found.token.with_paused(link(0), None)).paused == {link(1): PAUSE}

    def test_what_has_finished_is_remembered_beside_what_is_paused(self) -> None:
        found = held()
        found.renew(1.0, found.token.with_paused(link(0), PAUSE))
        assert found.renew(2.0, found.token.with_finished(link(1), "one thing")) == Token(
            2, {link(0): PAUSE}, finished={link(1): "one thing"}
        )
        assert found.renew(3.0, found.token.with_finished(link(1), None)) == Token(3, {link(0): PAUSE})


@pytest.mark.parametrize(
    ("kind", "waits"), [(LinkKind.EXCHANGE, False), (LinkKind.QUEUE, True), (LinkKind.SHOVEL, True)]
)
def test_what_another_lost_without_giving_it_up_waits_until_it_has_surely_ended(kind: LinkKind, waits: bool) -> None:
    found = sharing(1)
    found.hear(report(1, of=[1]), LATE - 1)
    assert found.take({1: held()}, LATE, WALL) == []
    assert isinstance(found.verdict(link(1), kind, LATE + LEASE), Elsewhere) == waits
    assert found.verdict(link(1), kind, LATE + SURELY_ENDED) is True


@pytest.mark.parametrize("ends", ["reports", "leaves", "has reported"])
def test_what_another_says_that_it_gave_up_does_not_wait(ends: str) -> None:
    found = sharing(1)
    found.hear(report(1, of=[1]), LATE - 1)
    if ends == "has reported":
        found.hear(report(1), LATE - 0.1)
    found.take({1: held()}, LATE, WALL)
    if ends == "leaves":
        assert found.leave("them", LATE)
    elif ends == "reports":
        assert found.hear(report(1), LATE)
    assert found.verdict(link(1), LinkKind.SHOVEL, LATE) is True


def test_what_another_still_reports_as_its_own_waits() -> None:
    found = sharing(1)
    found.hear(report(1, of=[1]), LATE - 1)
    found.take({1: held()}, LATE, WALL)
    found.hear(report(1, of=[1]), LATE)
    assert isinstance(found.verdict(link(1), LinkKind.SHOVEL, LATE), Elsewhere)


def test_who_has_yet_to_say_its_links_isnt_overruled() -> None:
    """The first that is heard of it may be that it gives slots up: such a report doesn't repeat the links."""
    us = sharing(1)
    us.hear(Report("r2", "second", frozenset({1}), None), LATE)
    assert isinstance(us.verdict(link(1), KIND, LATE + STRANGE_FOR), Elsewhere)
    assert not us.others.knows_links_of("r2")
    us.hear(Report("r2", "second", frozenset({1}), frozenset()), LATE)
    assert us.verdict(link(1), KIND, LATE + STRANGE_FOR) is True
    us.hear(Report("r2", "second", frozenset({1}), None), LATE)
    assert us.verdict(link(1), KIND, LATE + STRANGE_FOR) is True, "it has said so before"
