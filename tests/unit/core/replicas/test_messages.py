"""What replicas say to each other, and tokens: whatever anybody publishes instead is ignored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.links.lifecycle import LONGEST_TEXT, Pause
from agent.core.replicas import messages
from agent.core.replicas.messages import Asked, Leaving, Message, Removed, Report
from agent.core.replicas.slots import MOST_BYTES, SLOTS, Token, read_token

SAID = [
    Report("r1", "a", frozenset({1, 5}), frozenset({"0000002a", "ffffffff"}), asks=True),
    Report("r1", "a", frozenset(), None),
    Report("r1", "a", frozenset(), frozenset()),
    Leaving("r1"),
    Asked("r1", "0000002a", "pause", Pause("ann", 12.5, "a new disk")),
    Asked("r1", "0000002a", "resume"),
    Removed("r1", "0000002a"),
]


@pytest.mark.parametrize("message", SAID)
def test_what_is_said_is_understood(message: Message) -> None:
    assert messages.decode(message.encode()) == message


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"format": 2, "kind": "leaving", "replica": "r"}',
        b'{"format": 1, "kind": "leaving", "replica": ""}', b'{"format": 1, "kind": "sings", "replica": "r"}',
        b'{"format": 1, "kind": "report", "replica": "r", "name": "n", "slots": 3}',
        b'{"format": 1, "kind": "report", "replica": "r", "name": "n", "slots": [], "links": 7}',
        b'{"format": 1, "kind": "report", "replica": "r", "name": "n", "slots": [], "links": "zzzzzzzz"}',
        b'{"format": 1, "kind": "report", "replica": "r", "name": "n", "slots": [], "links": "0000002"}',
        b'{"format": 1, "kind": "leaving", "replica": "\\ud800"}',
        b'{"format": 1, "kind": "leaving", "replica": "\\u0007"}',
        b'{"format": 1, "kind": "asked", "replica": "r", "link": {}, "action": "pause"}',
        b" " * (MOST_BYTES + 1),
    ],
)  # fmt: skip
def test_anything_else_is_ignored(body: bytes) -> None:
    assert messages.decode(body) is None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_slots_that_do_not_exist_are_left_out(value: object) -> None:
    body = {"format": 1, "kind": "report", "replica": "r", "name": "n", "slots": [value, -1, 64, 3], "links": None}
    found = messages.decode(json.dumps(body).encode())
    assert isinstance(found, Report)
    assert 3 in found.slots
    assert found.slots <= frozenset(range(64))


def test_a_token_says_what_the_next_holder_has_to_know() -> None:
    written = Token(7, {"0000002a": Pause("ann", 3.0, "a new disk")}, {"r1": 12.5}, {"0000002b": "4d"})
    assert read_token(written.encode()) == written


def test_a_token_has_room_for_all_that_an_operator_pauses_at_once() -> None:
    """Ten thousand links, and why in another script."""
    reason = "й" * LONGEST_TEXT
    written = Token(3, {f"{link:08x}": Pause("ops", 1.0, reason) for link in range(10_000 // SLOTS)})
    assert read_token(written.encode()) == written


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"[]", b'{"format": 9, "number": 3}', b"[" * 100_000, b" " * (MOST_BYTES + 1)]
)
def test_what_is_no_token_says_nothing(body: bytes) -> None:
    assert read_token(body) == Token()


def test_what_a_token_says_wrongly_is_left_out() -> None:
    said = {"paused": {"0000002a": 7}, "tried": {"r": "soon", "s": True, "t": 1}, "finished": {"2a": 3, "2b": "4d"}}
    body = {"format": 1, "number": -3, **said}
    assert read_token(json.dumps(body).encode()) == Token(0, {"0000002a": Pause()}, {"t": 1.0}, {"2b": "4d"})
