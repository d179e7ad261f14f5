"""How many bytes are on their way to quarantines before their sources are no longer read."""

from __future__ import annotations

import asyncio

from agent.links.quarantine import LONGEST_HOLD, MOST_WAITING, _Brake
from tests.unit.amqp.wire.virtual_loop import in_virtual_time


class Reader:
    def __init__(self) -> None:
        self.holders: set[object] = set()

    def hold(self, holder: object) -> None:
        self.holders.add(holder)

    def release(self, holder: object) -> None:
        self.holders.discard(holder)


def test_sources_are_held_up_while_too_much_is_on_its_way() -> None:
    async def scenario() -> None:
        brake, few, many = _Brake(), Reader(), Reader()
        brake.press(few, MOST_WAITING)
        brake.press(many, 1)
        assert (bool(few.holders), bool(many.holders)) == (False, True)
        brake.press(few, 1)
        assert few.holders
        brake.ease(MOST_WAITING // 2)
        assert few.holders, "not for each single one"
        brake.ease(2)
        assert not few.holders | many.holders
        await asyncio.sleep(2 * LONGEST_HOLD)
        brake.press(few, MOST_WAITING)
        assert few.holders, "it begins anew"

    in_virtual_time(scenario())


def test_a_quarantine_that_takes_nothing_holds_up_what_follows_for_a_moment_only() -> None:
    async def scenario() -> None:
        brake, reader = _Brake(), Reader()
        brake.press(reader, MOST_WAITING + 1)
        await asyncio.sleep(LONGEST_HOLD + 1)
        brake.press(reader, 1)
        assert not reader.holders
        brake.ease(MOST_WAITING)
        brake.press(reader, MOST_WAITING)
        assert reader.holders, "it takes some again"

    in_virtual_time(scenario())
