from __future__ import annotations

import asyncio
import base64
import json

import pytest

from agent.core.addresses.uri import parse
from agent.core.settings import DownstreamSettings
from agent.runtime.expiry import watch_expiries
from agent.status.board import Board

END = 1_900_000_000
CLAIMS = base64.urlsafe_b64encode(json.dumps({"exp": END}).encode()).decode().rstrip("=")


async def test_a_look_that_fails_is_not_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    board = Board(lambda: 0.0, "a")
    looked = 0

    async def sleep(_: float) -> None:
        nonlocal looked
        looked += 1
        if looked == 2:
            raise asyncio.CancelledError

    def downstream() -> DownstreamSettings:
        if looked == 0:
            raise RuntimeError("unforeseen")
        return DownstreamSettings((parse(f"amqp://u:x.{CLAIMS}.y@h"),), ())

    with pytest.raises(asyncio.CancelledError):
        await watch_expiries(downstream, lambda _: (), board, sleep=sleep)
    assert [expiry.at for expiry in board.expiries] == [END]
    assert "look at certificates" in capsys.readouterr().out
