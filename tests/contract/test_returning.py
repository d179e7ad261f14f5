"""What comes back to a queue: where it comes again, what it shows, and how often until it is dropped."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.contract.asking import Asking, Line, Release, headers_of
from tests.contract.test_declares import NEW
from tests.lab.waiting import eventually_async

DOCUMENT: Final = Path(__file__).parents[2] / "docs/operations.md"
NEVER: Final = 25
"""Deliveries after which none of these limits is taken to hold."""
DELIVERIES: Final = {
    # of a quorum queue with this x-delivery-limit, to channels that are closed or that give the message back
    ("closed", None): {"3.10": NEVER, "4.0": 21},
    ("nack", None): {"3.10": NEVER, "4.0": 21, "4.3": NEVER},
    ("closed", 2): {"3.10": 3},
    ("nack", 2): {"3.10": 3, "4.3": NEVER},
    ("closed", -1): {"3.10": 1, "4.0": NEVER},
}
FIRST: Final[dict[str, dict[str, int]]] = {"3.10": {"x-delivery-count": 0}, "4.0": {}}
GIVEN_BACK: Final = {"3.10": {"x-delivery-count": 1}, "4.3": {"x-acquired-count": 1}}
CLOSED: Final = {"3.10": {"x-delivery-count": 1}, "4.3": {"x-delivery-count": 1, "x-acquired-count": 1}}
ORDER: Final = {
    # of 1, 2 and 3, after 1 was given back
    "classic": {"3.10": ["1", "2", "3"]},
    "quorum": {"3.10": ["2", "3", "1"], "4.0": ["1", "2", "3"]},
}


async def get(line: Line, queue: str) -> tuple[bool, dict[str, Any]]:
    """The next message: whether it came before, and its headers. What comes back is there a moment later."""

    async def got() -> bool:
        return await line.get(queue)

    await eventually_async(got, what=f"a message is in {queue}")
    message = line.messages[-1]
    return message.call["redelivered"], headers_of(message)


@pytest.mark.parametrize("kind", ORDER)
async def test_where_it_comes_again(ask: Asking, release: Release, kind: str) -> None:
    await ask.queue(kind, {"x-queue-type": kind})
    for number in (b"1", b"2", b"3"):
        await ask.publish("", kind, body=number)
    line = await ask.line()
    await get(line, kind)
    line.give_back(last=line.messages[-1])
    again = [await get(line, kind) for _ in range(3)]
    assert line.bodies[1:] == release.says(ORDER[kind])
    assert sorted(came_before for came_before, _ in again) == [False, False, True]
    line.give_back()
    for _ in range(3):
        await get(line, kind)
    assert line.bodies[4:] == release.says(ORDER[kind])
    await line.channel.close()
    line = await ask.line()
    for _ in range(3):
        await get(line, kind)
    assert line.bodies == release.says(ORDER[kind])
    assert not await line.get(kind)


async def test_what_it_shows(ask: Asking, release: Release) -> None:
    await ask.queue("shown classic")
    await ask.queue("shown quorum", {"x-queue-type": "quorum"})
    for queue in ("shown classic", "shown quorum"):
        await ask.publish("", queue)
    line = await ask.line()
    assert await get(line, "shown classic") == (False, {})
    line.give_back()
    assert await get(line, "shown classic") == (True, {})
    assert await get(line, "shown quorum") == (False, release.says(FIRST))
    line.give_back(last=line.messages[-1])
    assert await get(line, "shown quorum") == (True, release.says(GIVEN_BACK))


async def test_what_it_shows_after_its_channel_was_closed(ask: Asking, release: Release) -> None:
    await ask.queue("closed", {"x-queue-type": "quorum"})
    await ask.publish("", "closed")
    line = await ask.line()
    await get(line, "closed")
    await line.channel.close()
    assert await get(await ask.line(), "closed") == (True, release.says(CLOSED))


async def deliveries(ask: Asking, how: str, arguments: Mapping[str, Any]) -> int:
    """How often a quorum queue with these arguments delivers a message, or NEVER."""
    queue, dropped = f"{how} {arguments}", f"dropped {how} {arguments}"
    to_dropped = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dropped}
    assert await ask.queue(queue, {"x-queue-type": "quorum", **to_dropped, **arguments}) == NEW
    await ask.queue(dropped)
    await ask.publish("", queue)
    count, line, end = 0, await ask.line(), await ask.line()

    async def is_somewhere() -> str:
        return "again" if await line.get(queue) else "dropped" if await end.get(dropped) else ""

    while count < NEVER and await eventually_async(is_somewhere, what="it is somewhere") == "again":
        count += 1
        if how == "nack":
            line.give_back()
        else:
            await line.channel.close()
            line = await ask.line()
    if count < NEVER:
        [death] = headers_of(end.messages[-1])["x-death"]
        assert (death["reason"], death["queue"]) == ("delivery_limit", queue)
    return count


@pytest.mark.parametrize(("how", "limit"), DELIVERIES, ids=str)
async def test_how_often(ask: Asking, release: Release, how: str, limit: int | None) -> None:
    found = await deliveries(ask, how, {} if limit is None else {"x-delivery-limit": limit})
    assert found == release.says(DELIVERIES[how, limit])


async def test_the_advised_policy_keeps_what_brokers_drop_by_default(ask: Asking, release: Release) -> None:
    """That of docs/operations.md."""
    found = re.search(r"set_policy .* '(\{[^']*\})'", DOCUMENT.read_text(encoding="utf-8"))
    assert found
    admin, vhost = release.node.admin, release.vhost
    admin.policy(vhost, "returns", "^closed", definition=json.loads(found[1]), apply_to="queues")
    assert await deliveries(ask, "closed", {"x-expires": 3_600_000}) == NEVER
    admin.delete("policies", vhost, "returns")
