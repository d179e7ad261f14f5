"""Names, backoff, patterns, fields: a rule or two each."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core import fields
from agent.core.fields import Field
from agent.core.links import waits
from agent.core.rules import names
from agent.core.rules.patterns import Pattern, TimeBudget, TimedPattern
from agent.core.text import did_you_mean
from tests.unit.core import strategies


@given(st.integers(1, 10_000), st.floats(0.5, 3600), st.floats(0, 1, exclude_max=True))
def test_backoff_starts_at_once_and_never_passes_its_bound(attempt: int, upper: float, chance: float) -> None:
    wait = waits.delay(attempt, upper, chance)
    assert 0 <= wait <= upper
    assert (wait == 0) == (attempt == 1)
    assert waits.slow_delay(upper, chance) >= 15


def test_backoff_doubles_and_spreads() -> None:
    assert [waits.delay(n, 5, 1) for n in range(2, 9)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5]
    assert waits.delay(9, 5, 0) == 2.5


def test_next_to_no_delay_is_no_login_after_another() -> None:
    assert [waits.delay(n, 0, 1) for n in range(1, 7)] == [0, 0.1, 0.2, 0.4, 0.5, 0.5]
    assert waits.delay(100, 0, 0) == 0.25
    assert not waits.is_steady(0.9, 0)
    assert waits.is_steady(1.1, 0)
    assert not waits.is_steady(4.9, 5)


def test_ids_stay_distinct_where_digests_collide() -> None:
    ids = names.LinkIds()
    assert ids.of("exchange", "/", "x", "a", "x") != ids.of("exchange", "/", "x", "a", "x")


def test_names_as_the_plugin_spells_them() -> None:
    assert names.internal_exchange("federation: x -> c", "A") == "federation: x -> c A"
    assert (names.other_letter("A"), names.other_letter("B")) == ("B", "A")
    assert names.connection("u", "p") == "Federation link (upstream: u, policy: p)"


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        (r"^federated\.", "federated.x", True),
        (r"^federated\.", "my.federated.x", False),
        ("ed", "federated", True),
        ("^[[:alpha:]]+$", "abc", True),
        ("^[[:alpha:]]+$", "a1", False),
        (r"^(?<n>a+)(?>b*)$", "aab", True),
        (r"^(?<n>a)\k<n>$", "aa", True),
        (r"^\Qa.b\E$", "a.b", True),
        (r"^\Qa.b\E$", "axb", False),
        (r"^\\Qa", "\\Qa", True),
        ("^[{]2[}]$", "{2}", True),
        ("^([a-z]{2,3}-){1,20}x$", "ab-cde-x", True),
        ("^(?!amq\\.).*", "amq.topic", False),
        ("(?i)ORDERS", "orders", True),
        ("", "anything", True),
    ],
)
def test_patterns_read_as_brokers_read_them(pattern: str, name: str, expected: bool) -> None:
    assert Pattern(pattern).matches(name) is expected


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "a{2,1}", "(" * 5000 + ")" * 5000])
def test_a_bad_pattern_is_said_in_one_line(pattern: str) -> None:
    with pytest.raises(ValueError, match="not a regular expression") as caught:
        Pattern(pattern)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "pattern", ["a{99999999}", "((a{100}){100}){100}", "x{65535}", "(ab{1000}){60}", "a{1,}{9999}{9999}", "[ab]{6000}"]
)
def test_a_pattern_that_unrolls_without_end_is_refused_before_it_costs_anything(pattern: str) -> None:
    with pytest.raises(ValueError, match="repeats more than"):
        Pattern(pattern)


def test_runaway_backtracking_is_no_verdict_and_no_hang() -> None:
    began = time.process_time()
    assert Pattern("^(a|aa)+$").matches("a" * 200 + "b") is None
    assert time.process_time() - began < 1


def test_a_pattern_that_takes_too_long_is_set_aside() -> None:
    """However many names there are, it costs its budget once; and an ordinary one costs nothing."""
    budget = TimeBudget().of_vhost()
    slow, quick = TimedPattern("^(a|aa)+$", budget), TimedPattern("^a", budget)
    names = [f"{'a' * 200}{number}" for number in range(10_000)]
    began = time.process_time()
    assert {slow.matches(name) for name in names} == {None}
    assert all(quick.matches(name) for name in names)
    assert time.process_time() - began < 2
    assert slow.problem is not None
    assert "takes too long" in slow.problem
    assert quick.problem is None


def test_a_pattern_is_not_slow_because_the_machine_is_busy() -> None:
    """Where giving up cost hardly any time of the clock, the name is judged again."""
    asked = 0

    class Interrupted(Pattern):
        __slots__ = ()

        def matches(self, name: str) -> bool | None:
            nonlocal asked
            asked += 1
            return None if asked < 3 else super().matches(name)

    found = TimedPattern("^a", TimeBudget().of_vhost(), compile_=Interrupted)
    assert found.matches("a") is True
    assert found.problem is None
    assert asked == 3


def test_a_thousand_ordinary_patterns_are_judged() -> None:
    """Compiling them takes longer than all that a vhost's names may: that isn't taken off it."""
    budget = TimeBudget(time.thread_time).of_vhost()
    patterns = [TimedPattern(rf"^tenant-{number}\.(orders|events)\..*$", budget) for number in range(1000)]
    assert [each.matches("tenant-7.orders.x") for each in patterns[:20]] == [number == 7 for number in range(20)]
    assert patterns[999].matches("tenant-999.events.y") is True
    assert not any(each.problem for each in patterns)


def test_a_pattern_is_not_slow_because_garbage_was_collected_while_it_was_compiled() -> None:
    now = 0.0

    class Collecting(Pattern):
        __slots__ = ()

        def __init__(self, text: str) -> None:
            nonlocal now
            super().__init__(text)
            now += 0.5

    found = TimedPattern("^a", TimeBudget(lambda: now).of_vhost(), compile_=Collecting)
    assert found.matches("a") is True
    assert found.problem is None


def test_what_a_name_takes_now_and_then_is_made_up_for_by_others() -> None:
    """A hundred policies and a thousand names: a few of them are interrupted by what else the process does."""
    now = 0.0

    class Interrupted(Pattern):
        __slots__ = ("asked",)

        def matches(self, name: str) -> bool | None:
            nonlocal now
            now += 0.1 if name == "500" else 50e-6 if int(name) % 10 == 0 else 5e-6
            return False

    budget = TimeBudget(lambda: now).of_vhost()
    patterns = [TimedPattern("^a", budget, compile_=Interrupted) for _ in range(100)]
    assert {each.matches(str(number)) for number in range(1000) for each in patterns} == {False}


def test_a_slow_vhost_leaves_time_for_the_others() -> None:
    budget = TimeBudget()
    slow = budget.of_vhost()
    slow.take(100)
    assert TimedPattern("^a", slow).matches("a") is None
    assert TimedPattern("^a", budget.of_vhost()).matches("a") is True


def test_a_number_that_amqp_lacks_is_refused() -> None:
    for value in (10**400, float("inf"), float("nan")):
        with pytest.raises(fields.UnusableError, match="out of AMQP's range"):
            fields.from_json({"n": [value]})


def test_json_is_bounded_in_depth_and_number() -> None:
    nested: object = 1
    for _ in range(5_000):
        nested = [nested]
    with pytest.raises(fields.UnusableError, match="nested deeper than 64"):
        fields.check_json(nested)
    with pytest.raises(fields.UnusableError, match="more than 10000 values"):
        fields.check_json({"a": [0] * 10_000})
    fields.check_json({"a": [0] * 5_000})


def test_suggestions_stay_cheap() -> None:
    began = time.process_time()
    assert did_you_mean("x" * 10_000, ["x" * 9_999]) == ""
    did_you_mean("origin", (f"upstream-{number}" for number in range(1_000_000)))
    assert time.process_time() - began < 1


@given(strategies.values)
def test_fields_survive_json_as_far_as_json_can_tell(value: Field) -> None:
    shown = fields.to_json(value)
    assert fields.to_json(fields.from_json(shown)) == shown


def test_json_becomes_the_fields_that_rabbitmq_makes_of_it() -> None:
    made = fields.table_from_json({"n": None, "b": True, "i": 1, "f": 1.5, "big": 2**70, "s": "x", "l": [1, {"k": 2}]})
    assert [value.tag for _, value in made] == ["V", "t", "l", "d", "d", "S", "A"]
    with pytest.raises(TypeError):
        fields.from_json(object())


def test_suggestions() -> None:
    assert did_you_mean("prefech-count", ["prefetch-count", "expires"]) == "; did you mean 'prefetch-count'?"
    assert did_you_mean("zzz", ["prefetch-count"]) == ""
