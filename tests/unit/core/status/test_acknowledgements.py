"""That somebody knows of a trouble, as the lease of a link remembers it, whatever somebody else has written."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest

from agent.core.links.lifecycle import LONGEST_TEXT, Pause
from agent.core.replicas.slots import MOST_BYTES, Token, read_token
from agent.core.status.acknowledgements import MOST_REMEMBERED, Acknowledgement, acknowledged, from_value

AT = 1_795_594_327.0
KNOWN = acknowledged("downstream", "memory alarm", by="ann@ops", at=AT, reason="disk is ordered", until=AT + 7_200)


def test_it_says_who_knows_since_when_why_and_until_when() -> None:
    assert KNOWN.text == (
        "acknowledged by ann@ops at 2026-11-25 08:12 UTC: disk is ordered, until 2026-11-25 10:12 UTC"
    )
    assert Acknowledgement("upstream", "unreachable").text == "acknowledged by somebody at 1970-01-01 00:00 UTC"


@pytest.mark.parametrize(("until", "is_over"), [(None, False), (AT + 1, False), (AT, True)])
def test_it_ends_with_its_time_if_it_has_one(until: float | None, *, is_over: bool) -> None:
    assert Acknowledgement("downstream", "memory alarm", until=until).is_over(AT) is is_over


def test_it_is_remembered_as_it_was_said() -> None:
    token = read_token(
        Token(7, paused={"1a2b3c4d": Pause.given("a", AT, "r")}, acknowledged={"1a2b3c4d": KNOWN}).encode()
    )
    assert (token.acknowledged, token.number) == ({"1a2b3c4d": KNOWN}, 7)
    assert from_value(asdict(KNOWN)) == KNOWN


@pytest.mark.parametrize("value", [None, [], 7, "x", {}, {"side": "downstream"}, {"side": 7, "trouble": "x"}])
def test_junk_is_no_acknowledgement(value: object) -> None:
    assert from_value(value) is None
    assert read_token(json.dumps({"format": 1, "acknowledged": {"1a2b3c4d": value}}).encode()).acknowledged == {}


@pytest.mark.parametrize("value", [[], 7, "x", None])
def test_a_token_that_says_something_else_remembers_none(value: object) -> None:
    assert read_token(json.dumps({"format": 1, "acknowledged": value}).encode()).acknowledged == {}


@pytest.mark.parametrize("until", ["x", True, -1, math.nan, 1e99])
def test_texts_and_times_are_bounded(until: object) -> None:
    found = acknowledged("s", "t", by="a\x1b[31m\nb", at=AT, reason="x" * 10_000, until=until)
    assert (len(found.reason), found.until) == (LONGEST_TEXT, None)
    assert found.by.isprintable()


def test_a_lease_remembers_a_bounded_number_and_forgets_what_is_over() -> None:
    worst = acknowledged("downstream", "memory alarm", by="\u202f" * LONGEST_TEXT, at=AT, reason="é" * LONGEST_TEXT)
    links = {f"{number:08x}": worst for number in range(MOST_REMEMBERED + 5)}
    token = Token().with_acknowledged(links)
    assert len(token.acknowledged) == MOST_REMEMBERED
    assert len(token.encode()) < MOST_BYTES / 2
    assert token.with_acknowledged(links) is token, "it is not written again and again"
    assert token.with_acknowledged(dict.fromkeys(links)) == Token()
