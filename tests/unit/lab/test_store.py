"""Things are made once for all processes, or lent to one at a time; a killed one blocks nobody."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from tests.lab.store import Store

CONTEXT = multiprocessing.get_context("fork")


def test_the_first_makes_what_all_are_given(tmp_path: Path) -> None:
    def slowly() -> int:
        time.sleep(0.1)
        return os.getpid()

    def ask(number: int) -> None:
        (tmp_path / f"{number}").write_text(str(Store(tmp_path / "store").once("it", slowly)))

    asking = [CONTEXT.Process(target=ask, args=(number,)) for number in range(4)]
    for each in asking:
        each.start()
    for each in asking:
        each.join(10)
    assert len({(tmp_path / f"{number}").read_text() for number in range(4)}) == 1


def test_what_was_given_back_is_lent_again_unless_it_is_not_taken(tmp_path: Path) -> None:
    store, made = Store(tmp_path), iter(range(10))
    with (
        store.lent("it", lambda: next(made), lambda _: True) as first,
        store.lent("it", lambda: next(made), lambda _: False) as second,
    ):
        assert (first, second) == (0, 1)
    with (
        store.lent("it", lambda: next(made), lambda _: True) as again,
        store.lent("it", lambda: next(made), lambda _: True) as new,
    ):
        assert (again, new) == (0, 2)


def test_what_a_killed_borrower_had_is_lent_to_nobody(tmp_path: Path) -> None:
    def borrow(has: Event) -> None:
        with Store(tmp_path).lent("it", lambda: "first", lambda _: True):
            has.set()
            time.sleep(60)

    has = CONTEXT.Event()
    borrower = CONTEXT.Process(target=borrow, args=(has,))
    borrower.start()
    assert has.wait(10)
    assert borrower.pid
    os.kill(borrower.pid, signal.SIGKILL)
    borrower.join(10)
    with Store(tmp_path).lent("it", lambda: "second", lambda _: True) as lent:
        assert lent == "second"


def test_an_error_of_the_borrower_is_its_own(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), Store(tmp_path).lent("it", lambda: "first", lambda _: True):
        raise BlockingIOError
