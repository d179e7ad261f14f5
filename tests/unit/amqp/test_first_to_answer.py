"""The addresses of one host are tried side by side, where one doesn't answer soon."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

import pytest

from agent.amqp.first_to_answer import first_to_answer
from agent.amqp.wire.connection import WireConnection
from tests.unit.amqp.wire.link import Wire, terms
from tests.unit.amqp.wire.virtual_loop import in_virtual_time

NEVER = 1_000.0


class Addresses:
    """Each answers after so many seconds, or with an error."""

    def __init__(self, answers: Mapping[str, float | OSError]) -> None:
        self._answers = answers
        self.begun: list[tuple[str, float]] = []
        self.given_up: list[str] = []
        self.opened: dict[str, WireConnection] = {}

    async def __call__(self, address: str) -> WireConnection:
        self.begun.append((address, asyncio.get_running_loop().time()))
        answer = self._answers[address]
        if isinstance(answer, OSError):
            raise answer
        try:
            await asyncio.sleep(answer)
        except asyncio.CancelledError:
            self.given_up.append(address)
            raise
        wire = self.opened[address] = WireConnection(terms())
        wire.connection_made(Wire())
        return wire

    async def first(self, *, step: float, within: float) -> str:
        until = asyncio.get_running_loop().time() + within
        found = await first_to_answer(tuple(self._answers), self, step=step, until=until)
        return next(address for address, wire in self.opened.items() if wire is found)


@pytest.mark.parametrize("within", [60.0, 2.0])
def test_one_that_never_answers_keeps_no_other_waiting(within: float) -> None:
    """Also where there is little time in all, as leases have."""

    async def live() -> None:
        addresses = Addresses({"a": NEVER, "b": 0.1})
        assert await addresses.first(step=20.0, within=within) == "b"
        assert addresses.given_up == ["a"]
        assert asyncio.get_running_loop().time() <= min(20.0, within) / 2

    in_virtual_time(live())


def test_many_leave_each_enough_time() -> None:
    """Over a long line, a connection with TLS takes more than a tenth of the three seconds that a lease has."""

    async def live() -> None:
        silent = [f"silent {number}" for number in range(9)]
        addresses = Addresses({**dict.fromkeys(silent, NEVER), "last": 1.4})
        assert await addresses.first(step=20.0, within=3.0) == "last"
        assert [address for address, _ in addresses.begun] == [*silent, "last"], "the first ones are the best"
        assert sorted(addresses.given_up) == silent
        assert addresses.begun[-1][1] <= 1.5

    in_virtual_time(live())


def test_of_those_that_answer_together_one_is_used() -> None:
    async def live() -> None:
        addresses = Addresses({"a": 0.75, "b": 0.25})  # which begins after 0.5 s
        assert await addresses.first(step=2.0, within=2.0) in {"a", "b"}
        assert [wire.closed.done() for wire in addresses.opened.values()].count(False) == 1
        assert len(addresses.opened) == 2

    in_virtual_time(live())


def test_where_none_answers_each_is_named() -> None:
    async def live() -> None:
        with pytest.raises(OSError, match=r"^no answer of a within 20 s; refused; no answer of c within 20 s$"):
            await Addresses({"a": NEVER, "b": OSError("refused"), "c": NEVER}).first(step=20.0, within=60.0)
        with pytest.raises(TimeoutError, match=r"^no answer of a within 3 s$"):
            await Addresses({"a": NEVER}).first(step=20.0, within=3.0)

    in_virtual_time(live())


def test_one_that_refuses_is_followed_at_once() -> None:
    async def live() -> None:
        addresses = Addresses({"a": OSError("refused"), "b": 0.0})
        assert await addresses.first(step=20.0, within=60.0) == "b"
        assert asyncio.get_running_loop().time() == 0

    in_virtual_time(live())


def test_a_certificate_that_is_refused_is_refused_for_all() -> None:
    async def live() -> None:
        addresses = Addresses({"a": ssl.SSLError("self-signed"), "b": 0.0})
        with pytest.raises(ssl.SSLError):
            await addresses.first(step=20.0, within=60.0)
        assert [address for address, _ in addresses.begun] == ["a"]

    in_virtual_time(live())
