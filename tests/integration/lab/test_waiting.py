"""Waiting ends with the answer or tells the last one."""

from collections.abc import Iterator

import pytest

from tests.lab.waiting import NeverHappenedError, eventually, eventually_async


def answers() -> Iterator[object]:
    yield 0
    yield ""
    yield "yes"


def test_the_first_true_answer_is_returned() -> None:
    asked = answers()
    assert eventually(lambda: next(asked)) == "yes"


def test_the_last_answer_is_told() -> None:
    with pytest.raises(NeverHappenedError, match=r"the moon is cheese: not within 0\.05 s; the last answer was \[\]"):
        eventually(list, 0.05, what="the moon is cheese")


def test_exceptions_count_only_where_ignored() -> None:
    with pytest.raises(NeverHappenedError, match="ValueError"):
        eventually(lambda: int("x"), 0.05, ignoring=ValueError)
    with pytest.raises(ValueError, match="invalid literal"):
        eventually(lambda: int("x"), 0.05)


async def test_coroutines_are_asked_alike() -> None:
    asked = answers()

    async def ask() -> object:
        return next(asked)

    async def fail() -> object:
        raise OSError

    assert await eventually_async(ask) == "yes"
    with pytest.raises(NeverHappenedError, match="OSError"):
        await eventually_async(fail, 0.05, ignoring=OSError)
