"""Which death was the first, and which messages are chosen by theirs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.fields import Field, Table, array, boolean, long, table, text
from agent.core.rules.moves import EVERYTHING, Death, HeaderChoice, deaths, first_death, origin

names = st.sampled_from(["a", "b", "c"])
reasons = st.sampled_from(["rejected", "expired"])
histories = st.lists(st.builds(Death, names, reasons, st.sampled_from(["", "x"]), names), max_size=8)


def written(history: list[Death]) -> Table:
    """As brokers write it: one entry for each queue and reason, which is the first one again when it is counted up."""
    found: list[tuple[Death, int]] = []
    for death in history:
        before = next((each for each in found if each[0][:2] == death[:2]), None)
        if before is not None:
            found.remove(before)
        found.insert(0, (before[0], before[1] + 1) if before else (death, 1))
    entries = [
        table(
            (
                ("count", long(count)),
                ("reason", text(death.reason)),
                ("queue", text(death.queue)),
                ("exchange", text(death.exchange)),
                ("routing-keys", array(text(death.routing_key), text("cc"))),
            )
        )
        for death, count in found
    ]
    first = history[0] if history else None
    headers = (
        (("x-first-death-queue", text(first.queue)), ("x-first-death-reason", text(first.reason))) if first else ()
    )
    return (("x-death", array(*entries)), *headers)


@given(histories)
def test_the_first_death_is_found_whatever_followed(history: list[Death]) -> None:
    found = first_death(written(history))
    assert found == (history[0] if history else None)
    assert {each[:2] for each in deaths(written(history))} == {each[:2] for each in history}


@given(histories)
def test_the_origin_is_the_queue_itself_where_the_exchange_is_the_default_one(history: list[Death]) -> None:
    first = history[0] if history else None
    expected = None if first is None else (first.exchange, first.routing_key) if first.exchange else ("", first.queue)
    assert origin(written(history)) == expected


def test_without_first_death_headers_the_last_entry_counts() -> None:
    headers = written([Death("a", "rejected", "", "a"), Death("b", "expired", "x", "k")])[:1]
    assert first_death(headers) == Death("a", "rejected", "", "a")


@pytest.mark.parametrize(
    "value",
    [text("mine"), array(), array(text("no table")), array(table(())), Field("A", b"unread"), long(1)],
)
def test_what_somebody_else_wrote_there_is_no_death(value: Field) -> None:
    assert first_death((("x-death", value),)) is None


@given(histories, reasons, names)
def test_one_death_has_all_that_is_asked_for(history: list[Death], reason: str, queue: str) -> None:
    headers = written(history)
    assert HeaderChoice(reason).takes(headers) is any(each.reason == reason for each in history)
    assert HeaderChoice(died_in=queue).takes(headers) is any(each.queue == queue for each in history)
    assert HeaderChoice(reason, queue).takes(headers) is any(each[:2] == (queue, reason) for each in history)
    assert EVERYTHING.takes(headers)


def test_headers_match_as_they_are_written_on_a_command_line() -> None:
    headers = (
        ("text", text("a=b")),
        ("number", long(-3)),
        ("yes", boolean(True)),
        ("raw", Field("x", b"raw")),
        ("void", Field("V", None)),
        ("list", array()),
    )
    for match in (("text", "a=b"), ("number", "-3"), ("yes", "true"), ("raw", "raw"), ("void", "")):
        assert HeaderChoice(match=(match,)).takes(headers)
    for match in (("text", "a"), ("number", "3"), ("yes", "True"), ("none", ""), ("list", "()")):
        assert not HeaderChoice(match=(("number", "-3"), match)).takes(headers)
