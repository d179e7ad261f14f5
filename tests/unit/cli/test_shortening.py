"""Long names in little room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.cli.shortening import differences, shortened


def all_shortened(names: list[str], width: int) -> list[str]:
    differs = differences(names)
    return [shortened(name, width, differs[name]) for name in names]


def test_names_that_differ_at_the_end_keep_their_end() -> None:
    names = [f"production.europe.orders.region-{number:04d}" for number in range(1_000)]
    short = all_shortened(names, 16)
    assert short[7] == "produ…egion-0007"
    assert len(set(short)) == len(names)


def test_names_that_differ_at_the_beginning_keep_it() -> None:
    names = [f"{where}.orders.of.all.customers.events" for where in ("paris", "rome")]
    assert all_shortened(names, 16) == ["paris…ers.events", "rome.…ers.events"]


def test_names_that_differ_in_the_middle_keep_it() -> None:
    names = [f"production.europe.orders.{number}.customers.events.v1" for number in (17, 18)]
    short = all_shortened(names, 16)
    assert len(set(short)) == 2
    assert all(f".{number}." in name for number, name in zip((17, 18), short, strict=True))


def test_numbers_are_whole() -> None:
    names = [f"a-rather-long-name-of-a-broker-{number:02}.frankfurt.example.com" for number in range(20)]
    short = all_shortened(names, 30)
    assert len(set(short)) == 20
    assert all(f"{number:02}" in name for number, name in enumerate(short))


def test_a_single_name_keeps_both_ends() -> None:
    assert all_shortened(["an.exchange.with.a.really.long.name"], 12) == ["an.…ong.name"]


@given(st.lists(st.text(max_size=40), min_size=1, max_size=8), st.integers(1, 20))
def test_none_is_wider_than_there_is_room_and_short_ones_are_whole(names: list[str], width: int) -> None:
    for name, short in zip(names, all_shortened(names, width), strict=True):
        assert len(short) <= max(width, 2)
        assert len(name) > width or short == name
