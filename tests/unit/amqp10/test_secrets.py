"""What a peer says of an error is shown in one line that holds no secret, whatever and however much it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp10 import performatives
from agent.amqp10.performatives import Performative
from agent.amqp10.types import Value
from tests.unit.amqp.wire.link import turn
from tests.unit.amqp10.peer import PASSWORD, Source, Target

ENDS: tuple[tuple[Performative, dict[str, Any]], ...] = (
    (performatives.CLOSE, {}),
    (performatives.END, {}),
    (performatives.DETACH, {"handle": 0, "closed": True}),
)
TEXTS = {
    "the password": f"user u has {PASSWORD} as its password",
    "cut at the end": "x" * 230 + PASSWORD,
    "cut where secrets are looked for": "x" * 1_015 + PASSWORD,
    "long": PASSWORD * 1_000,
    "of control characters": "\x1b[2J\r\n\x00\u202e" * 50,
    "not text": "\udcff\udc80" * 200,
    "of four bytes a letter": "\U0001f600" * 300,
    "nothing": "",
}


async def ended(target: Source | Target, kind: Performative, values: dict[str, Any], error: bytes | Value) -> str:
    target.peer.say(kind, error=error, **values)
    await turn()
    if kind is performatives.CLOSE:
        return target.peer.error
    return str(target.channel.closed.result())


def check(shown: str) -> None:
    assert shown.isprintable() and len(shown) <= 300
    for at in range(len(PASSWORD) - 7):
        assert PASSWORD[at : at + 8] not in shown


@pytest.mark.parametrize(("kind", "values"), ENDS, ids=[kind.name for kind, _ in ENDS])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("condition", ["amqp:not-found", PASSWORD, "\n\x1b[2J", "x" * 10_000])
async def test_a_text(kind: Performative, values: dict[str, Any], text: str, condition: str) -> None:
    for target in (await Target.made(), await Source.made()):
        error = performatives.ERROR.encode(condition=condition, description=text)
        shown = await ended(target, kind, values, error)
        check(shown)
        if condition == "amqp:not-found":
            assert shown.startswith("NOT_FOUND - ")


@pytest.mark.parametrize(("kind", "values"), ENDS, ids=[kind.name for kind, _ in ENDS])
async def test_a_text_is_shown_as_it_is_but_for_secrets(kind: Performative, values: dict[str, Any]) -> None:
    for before in ("", "x" * 230):  # of which half would be left if it were cut first
        error = performatives.ERROR.encode(condition="amqp:not-found", description=f"{before} {PASSWORD} is it")
        shown = await ended(await Target.made(), kind, values, error)
        assert shown.startswith(f"NOT_FOUND - {before} [redact".replace("-  [", "- ["))


@pytest.mark.parametrize(("kind", "values"), ENDS, ids=[kind.name for kind, _ in ENDS])
async def test_an_error_that_amqp_doesnt_know(kind: Performative, values: dict[str, Any]) -> None:
    other = Value("described", (Value("symbol", PASSWORD), Value("list", ())))
    shown = await ended(await Target.made(), kind, values, other)
    assert shown == "CONNECTION_FORCED - no reason is given"


WRONG = [
    performatives.frame(0, b"\x00\xa3" + bytes((len(PASSWORD),)) + PASSWORD.encode() + b"\x45"),
    performatives.frame(0, b"\x00\xa1" + bytes((len(PASSWORD),)) + PASSWORD.encode() + b"\x45"),
    performatives.frame(0, performatives.BEGIN.encode(next_outgoing_id=0, incoming_window=0, outgoing_window=0)[:-1]),
    PASSWORD.encode() * 100,
]


@pytest.mark.parametrize("wrong", WRONG)
async def test_what_is_wrong_isnt_quoted(wrong: bytes) -> None:
    target = await Target.made()
    target.peer.feed(wrong)
    check(target.peer.error)
    assert target.peer.error.startswith("broken AMQP 1.0: ")


@given(st.text(max_size=2_000), st.text(max_size=300))
def test_any_text_can_be_shown(condition: str, text: str) -> None:
    async def scenario() -> None:
        error = performatives.ERROR.encode(condition=condition, description=text)
        check(await ended(await Target.made(), performatives.CLOSE, {}, error))

    asyncio.run(scenario())
