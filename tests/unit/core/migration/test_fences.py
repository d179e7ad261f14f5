"""What a fence remembers can be read by any host, and by nobody else's rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.migration.fences import PREFIX, ClientFence, Permissions, read_fence

TEXTS = st.text(max_size=20)
FENCES = st.builds(
    ClientFence, TEXTS, TEXTS, st.builds(Permissions, TEXTS, TEXTS, TEXTS), st.one_of(st.none(), st.floats(0, 1e11))
)


@given(FENCES)
def test_it_is_read_as_it_was_written(fence: ClientFence) -> None:
    assert read_fence(fence.name, dict(fence.value)) == fence
    assert fence.name.startswith(PREFIX)


@given(FENCES, FENCES)
def test_each_user_of_each_vhost_has_one_of_its_own(one: ClientFence, other: ClientFence) -> None:
    assert (one.name == other.name) is ((one.vhost, one.user) == (other.vhost, other.user))


FENCE = ClientFence("v", "u", Permissions("c", "w", "r"), 1.0)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        {},
        {**FENCE.value, "since": "yesterday"},
        {**FENCE.value, "since": True},
        {**FENCE.value, "since": 10**400},
        {**FENCE.value, "since": -1},
        {**FENCE.value, "since": float("nan")},
        {**FENCE.value, "since": float("inf")},
        {**FENCE.value, "write": None},
        {**FENCE.value, "user": "another"},
    ],
)
def test_what_isnt_one(value: Any) -> None:
    assert read_fence(FENCE.name, value) is None


@given(st.builds(Permissions, TEXTS, TEXTS, TEXTS), TEXTS)
def test_what_is_taken_comes_back_and_read_stays_as_it_is(had: Permissions, read: str) -> None:
    taken = had.taken()
    assert (taken.are_taken, taken.may_publish, taken.read) == (True, False, had.read)
    assert taken.given_back(had) == had
    assert Permissions("^$", "^$", read).given_back(had) == Permissions(had.configure, had.write, read)
