"""Where a move's messages go, by their headers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent.amqp.data.rewriting import Delivery, Destination
from agent.amqp.wire.properties import HEADERS, Properties
from agent.amqp.wire.tables import encode_table
from agent.core.fields import Field, Table, array, long, table, text
from agent.core.rules.moves import LOOKED_AT, NO_DEATH, NO_EXCHANGE, NOT_CHOSEN, RETURNED, HeaderChoice, MoveAccount
from agent.core.rules.quarantine import QuarantineReason
from agent.runtime.move_chooser import COMES_TOO_OFTEN, MoveChooser, MoveOptions, StripDeaths

DELIVERY = Delivery(b"from", b"key", redelivered=False)


class Known:
    """Exchanges that are known to exist, or not."""

    def objection(self, exchange: str) -> str | None:
        return {"": "", "x": "", "gone": NO_EXCHANGE}.get(exchange)


class Taking:
    def __init__(self) -> None:
        self.is_over = False

    def take_no_more(self) -> None:
        self.is_over = True


def chooser(
    account: MoveAccount | None = None, flow: Taking | None = None, *, counted: bool = False, **options: Any
) -> MoveChooser:
    made: Callable[..., MoveChooser] = MoveChooser
    return made(
        MoveOptions("q", **options), account or MoveAccount(), Known(), flow or Taking(), returns_are_counted=counted
    )


def properties(*headers: tuple[str, Field]) -> bytes:
    return Properties(HEADERS, ((HEADERS, encode_table(headers)),)).write()


def died(exchange: str, queue: str, key: str) -> tuple[str, Field]:
    entry: Table = (
        ("queue", text(queue)),
        ("reason", text("rejected")),
        ("exchange", text(exchange)),
        ("routing-keys", array(text(key))),
    )
    return "x-death", array(table(entry))


def address(exchange: bytes, key: bytes) -> bytes:
    return bytes([len(exchange)]) + exchange + bytes([len(key)]) + key


@pytest.mark.parametrize(
    ("destination", "expected"),
    [
        (Destination("", "new"), (b"", b"new")),
        (Destination("x", "k"), (b"x", b"k")),
        (Destination("x"), (b"x", b"key")),
    ],
)
def test_a_fixed_destination(destination: Destination, expected: tuple[bytes, bytes]) -> None:
    made = chooser(destination=destination, choice=HeaderChoice(match=(("n", "1"),)))
    assert made.choose(properties(("n", long(1))), DELIVERY, 1) == address(*expected)
    assert made.choose(properties(("n", long(2))), DELIVERY, 1) == NOT_CHOSEN
    assert made.choose(b"\0\0", DELIVERY, 1) == NOT_CHOSEN
    assert made.choose(b"\x20\0\0\0\0\1", DELIVERY, 1) == QuarantineReason.UNREADABLE


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([died("x", "q", "k")], address(b"x", b"k")),
        ([died("", "q", "other")], address(b"", b"q")),
        ([died("gone", "q", "k")], NO_EXCHANGE),
        ([died("unknown", "q", "k")], None),
        ([died("x", "q", "k" * 256)], NO_DEATH),
        ([], NO_DEATH),
    ],
)
def test_a_redrive(headers: list[tuple[str, Field]], expected: bytes | str | None) -> None:
    assert chooser().choose(properties(*headers), DELIVERY, 1) == expected


def test_a_limit_counts_those_that_are_chosen() -> None:
    flow = Taking()
    made = chooser(flow=flow, destination=Destination("", "new"), choice=HeaderChoice(match=(("n", "1"),)), limit=2)
    for number, is_over in ((2, False), (1, False), (2, False), (1, True)):
        made.choose(properties(("n", long(number))), DELIVERY, 1)
        assert flow.is_over is is_over


def test_a_dry_run_shows_the_first_ten_and_counts_all() -> None:
    account = MoveAccount()
    made = chooser(account, destination=Destination("x"), is_dry=True)
    for number in range(12):
        raw = ("raw", Field("x", b"\xff"))
        assert made.choose(properties(("n", long(number)), raw), DELIVERY, 7) == LOOKED_AT
    assert account.destinations == {("x", "key"): 12}
    assert len(account.first) == 10
    assert account.first[9] == {
        "exchange": "x",
        "routing_key": "key",
        "bytes": 7,
        "redelivered": False,
        "headers": {"n": 9, "raw": "\ufffd"},
    }


@pytest.mark.parametrize("counted", [True, False])
def test_what_its_queue_would_drop_soon_ends_it_where_returns_are_counted(counted: bool) -> None:
    """Only if it would have to go back."""
    account, flow = MoveAccount(), Taking()
    made = chooser(account, flow, counted=counted, destination=Destination("", "new"), choice=HeaderChoice("expired"))
    often = ("x-delivery-count", long(10))
    found = made.choose(properties(often), DELIVERY, 1)
    assert (found, flow.is_over) == ((RETURNED, True) if counted else (NOT_CHOSEN, False))
    assert account.notes == ([COMES_TOO_OFTEN] if counted else [])
    made = chooser(account, counted=counted, destination=Destination("", "new"), is_dry=True)
    assert made.choose(properties(often), DELIVERY, 1) == (RETURNED if counted else LOOKED_AT)
    made = chooser(counted=True, destination=Destination("", "new"), choice=HeaderChoice(match=(("n", "1"),)))
    assert made.choose(properties(often, ("n", long(1))), DELIVERY, 1) == address(b"", b"new")


def test_the_headers_of_deaths_are_removed_and_no_others() -> None:
    names = ["x-death", "a", "x-first-death-queue", "x-last-death-reason", "x-death-of-mine", "x-first-death-exchange"]
    headers = encode_table(tuple((name, text("v")) for name in names))
    kept = encode_table((("a", text("v")), ("x-death-of-mine", text("v"))))
    assert StripDeaths().rewrite(headers, DELIVERY) == kept
