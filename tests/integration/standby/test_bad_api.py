"""The source's HTTP API hangs, fails, or answers something else, while a standby follows and is promoted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from agent.core.rules.names import PROMOTED
from agent.core.standby.trim import TrimRule
from agent.definitions.sources.load import load_configuration
from agent.migration.figures import SLOW as SLOW_LIST
from agent.migration.standby import keep_in_step
from agent.status.board import Board
from tests.hostile.api import JSON, HostileApi, Misbehaviour, hostile_api
from tests.integration.standby.scene import HURRIED, OLD_FIGURES, VHOST, StandbyScene
from tests.lab import user_program
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.waiting import DEADLINE, eventually

HTML: Final = {"Content-Type": "text/html"}
STAYS_FOR: Final = 5.0
TRIMMED_WITHIN: Final = 240.0
ENDS_WITHIN: Final = 150.0
SLOW: Final = 2.0
COPIES: Final = 10
LOOKING: Final = 0.75
HELD_WITHIN: Final = 240.0
TRIMMED_BY: Final = 60.0
"""Hurried, copies go 42 to 57 s after they were consumed at the source, unless something keeps them."""


def _said(*pieces: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter(pieces)


GARBAGE: Final = {
    "HTML": Misbehaviour("", _said(b"<html>Welcome</html>"), HTML, shows="this is not RabbitMQ's HTTP API"),
    "cut short": Misbehaviour("", _said(b"[{}"), {**JSON, "Content-Length": "100"}, shows="was cut short"),
    "an error": Misbehaviour("", _said(b"{}"), status=500, shows="the HTTP API fails (500)"),
}


@pytest.fixture
def api(standby: StandbyScene) -> Iterator[HostileApi]:
    """That of the source, as the agent reaches it."""
    with hostile_api(standby.source_node.management_url) as found:
        yield found


def follow(standby: StandbyScene, management: str) -> None:
    """The agent runs, and copies of ten messages that were consumed at the source wait until they may go."""
    standby.fill()
    standby.write({"management": management}, trim={"after": "5m"})
    standby.agent.start(HURRIED)
    standby.wait_in_step()
    time.sleep(OLD_FIGURES)
    standby.publish(map(str, range(10)))
    for queue in ("orders", "audit"):
        assert len(standby.source.take(10, queue=queue)) == 10
    standby.wait_depths(orders=(0, 10), audit=(0, 10))


def here(standby: StandbyScene) -> list[int]:
    return [standby.node.admin.get("queues", VHOST, queue)["messages"] for queue in ("orders", "audit")]


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_garbage_ends_no_copy_and_a_switchover_goes_on_once_it_is_over(standby: StandbyScene, api: HostileApi) -> None:
    """Nothing is trimmed meanwhile, and the reason is said."""
    follow(standby, api.uri)
    began = time.monotonic()
    for name, wanted in GARBAGE.items():
        api.misbehaviour = wanted
        wait_shown(standby, wanted.shows)
        ran = standby.refused("promote", "-c", "agent.yaml", "--switchover")
        assert "isn't in step" in ran
        assert wanted.shows in ran, name
        assert here(standby) == [COPIES, COPIES], name
    time.sleep(max(0.0, began + TRIMMED_BY - time.monotonic()))
    assert here(standby) == [COPIES, COPIES]
    assert _promoted(standby) == []
    api.misbehaviour = None
    standby.wait_in_step()
    eventually(lambda: here(standby) == [0, 0], TRIMMED_WITHIN, what="copies are trimmed")
    standby.publish(map(str, range(COPIES)))
    assert len(standby.source.take(4, queue="audit")) >= 4
    standby.wait_depths(orders=(COPIES, COPIES), audit=(0, COPIES))
    started = standby.begin_switchover()
    eventually(lambda: _promoted(standby), what="it is noted that it is promoted")
    api.misbehaviour = GARBAGE["HTML"]
    assert started.wait(ENDS_WITHIN) == 4, standby.switchover.read_text()
    assert GARBAGE["HTML"].shows in standby.switchover.read_text()
    api.misbehaviour = None
    done = standby.run("promote", "-c", "agent.yaml", "--switchover")
    assert (done["promoted"], done["problems"]) == (True, [])
    assert standby.here.take(COPIES, queue="orders") == [str(number) for number in range(COPIES)]
    assert standby.here.take(0, queue="audit") == []


def test_what_is_held_goes_back_once_it_fails(
    standby: StandbyScene, api: HostileApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails from the look that holds copies to the next one, which would acknowledge them."""
    monkeypatch.setattr("agent.migration.standby.rule_of", lambda _: TrimRule(after=1, keep=1, late=3, timeout=None))
    monkeypatch.setattr("agent.migration.standby.BETWEEN", LOOKING)
    standby.fill()
    standby.write({"management": api.uri})
    configuration = load_configuration(str(standby.agent.path), environment={})
    board = Board(time.time, "a")

    def after_a_look() -> bool:
        """True at the end; whoever looks waits meanwhile."""
        if board.standby is None or board.standby.followed_at is None:
            return False
        if api.misbehaviour is not None:
            assert GARBAGE["an error"].shows in board.standby.depths_error
            eventually(lambda: user_program.depth(standby.here.uri, "orders") == COPIES, what="what was held is back")
            return True
        if not published:
            standby.here.publish(map(str, range(COPIES)), exchange="orders")
            published.append(True)
        elif user_program.depth(standby.here.uri, "orders") < COPIES:
            api.misbehaviour = GARBAGE["an error"]
        return False

    async def work() -> None:
        over = asyncio.Event()

        async def sleep(seconds: float) -> None:
            if seconds == LOOKING and await asyncio.to_thread(after_a_look):
                over.set()
            await asyncio.sleep(LOOKING)

        keeping = asyncio.create_task(keep_in_step(lambda: configuration, board, sleep))
        waiting = asyncio.create_task(over.wait())
        await asyncio.wait([keeping, waiting], timeout=HELD_WITHIN, return_when=asyncio.FIRST_COMPLETED)
        ended = keeping.done()
        for task in (keeping, waiting):
            task.cancel()
        found = await asyncio.gather(keeping, waiting, return_exceptions=True)
        assert over.is_set() and not ended, found

    published: list[bool] = []
    asyncio.run(work())


def wait_shown(standby: StandbyScene, shows: str, deadline: float = DEADLINE) -> None:
    """Until that is why it isn't in step."""
    what = f"{shows} is why it isn't in step"
    eventually(lambda: any(shows in why for why in _not_in_step(standby)), deadline, what=what)


def _not_in_step(standby: StandbyScene) -> list[str]:
    return [] if (found := standby.status())["in_step"] else list(found["why_not"])


def _promoted(standby: StandbyScene) -> list[object]:
    return [each for each in standby.node.admin.get("global-parameters") if each["name"] == PROMOTED]


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_commands_end_in_time_while_it_hangs(standby: StandbyScene, proxy_to: Callable[[Node | int], Proxy]) -> None:
    to_api = proxy_to(standby.source_node.management_port)
    follow(standby, standby.source_node.management_uri(port=to_api.port))
    to_api.delay(SLOW / 2)
    time.sleep(STAYS_FOR)
    standby.wait_in_step()
    to_api.delay(SLOW_LIST / 2 + 1)
    eventually(lambda: "figures may be too old" in str(standby.status()["queues"]), what="they aren't used")
    to_api.delay(0)
    to_api.blackhole()
    before = here(standby)
    began = time.monotonic()
    said = standby.refused("promote", "-c", "agent.yaml", "--switchover")
    assert "no answer within 30 s" in said
    assert time.monotonic() - began < ENDS_WITHIN
    wait_shown(standby, "no answer within 30 s")
    assert here(standby) == before
    began = time.monotonic()
    done = standby.run("promote", "-c", "agent.yaml", "--failover")
    assert (done["promoted"], done["agent_has_ended"], done["left"]) == (True, True, {})
    assert time.monotonic() - began < ENDS_WITHIN
