"""Bindings that are asserted in turn, at a bounded rate."""

from __future__ import annotations

from collections import Counter

from agent.core.links.rounds import PER_SECOND, WITHIN, Rounds


def served(rounds: Rounds[str], seconds: float, step: float = 3.0) -> Counter[str]:
    found: Counter[str] = Counter()
    for _ in range(int(seconds / step)):
        for member, count in rounds.due(step):
            found[member] += count
    return found


def of(sizes: dict[str, int]) -> Rounds[str]:
    rounds = Rounds(sizes.__getitem__)
    for member in sizes:
        rounds.add(member)
    return rounds


def test_few_come_round_once_in_the_time() -> None:
    found = served(of({"a": 20, "b": 40}), WITHIN)
    assert found["a"] in range(19, 21)
    assert found["b"] in range(39, 41)


def test_very_many_cost_no_more_than_the_rate_and_all_have_their_turn() -> None:
    sizes = {"many": 20_000, "few": 1}
    rounds = of(sizes)
    assert served(rounds, WITHIN)["many"] <= WITHIN * PER_SECOND + 1
    found = served(rounds, 20_002 / PER_SECOND)
    assert found["few"] >= 1


def test_a_member_that_leaves_in_its_turn_takes_nothing_of_the_next() -> None:
    sizes = {"a": 600, "b": 600}
    rounds = of(sizes)
    served(rounds, 30)
    rounds.remove("a")
    assert set(served(rounds, 2 * WITHIN)) == {"b"}
    assert list(rounds) == ["b"]


def test_nobody_and_nothing() -> None:
    assert Rounds[str](len).due(3.0) == []
    assert served(of({"a": 0, "b": 0}), WITHIN) == Counter()
    assert served(of({"a": 0, "b": 600}), 30)["b"] > 0
