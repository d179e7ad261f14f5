"""Reads of the HTTP API that are tried again, and those that are not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from agent.core.addresses.uri import parse_http
from agent.errors import BrokerError, PermanentError, TransientError
from agent.management.client import ManagementClient
from agent.management.transport import ATTEMPTS
from tests.hostile.api import HostileApi, Misbehaviour, hostile_api
from tests.lab.node import Node

OVERVIEW = "/api/overview"
REFUSED = b'{"error":"x","reason":"Not_Authorized"}'


@pytest.fixture
def api(broker: Node) -> Iterator[HostileApi]:
    with hostile_api(broker.management_url) as made:
        yield made


def failing(status: int, times: int | None = None) -> Misbehaviour:
    return Misbehaviour("overview", lambda: iter([REFUSED]), status=status, times=times)


def silent() -> Iterator[bytes]:
    time.sleep(10)
    yield b""


async def ask(api: HostileApi, *more: HostileApi, seconds: float = 10) -> str:
    async with ManagementClient([parse_http(each.uri) for each in (api, *more)], timeout=seconds) as client:
        return (await client.overview())["cluster_name"]


@pytest.mark.parametrize(
    "misbehaviour",
    [
        Misbehaviour("overview", lambda: iter(()), resets=True, times=1),
        Misbehaviour(
            "overview", lambda: iter([b"{"]), {"Content-Type": "application/json", "Content-Length": "9"}, times=1
        ),
        failing(502, times=1),
        failing(503, times=2),
        failing(504, times=1),
    ],
    ids=["reset", "breaks off", "502", "503 twice", "504"],
)
async def test_what_passes_is_asked_again(api: HostileApi, broker: Node, misbehaviour: Misbehaviour) -> None:
    api.misbehaviour = misbehaviour
    assert await ask(api) == broker.cluster_name
    assert misbehaviour.times is not None
    assert api.asked == [OVERVIEW] * (misbehaviour.times + 1)


@pytest.mark.parametrize(
    ("status", "kind"), [(401, PermanentError), (404, PermanentError), (429, TransientError), (500, TransientError)]
)
async def test_what_does_not_pass_is_asked_once(api: HostileApi, status: int, kind: type[BrokerError]) -> None:
    api.misbehaviour = failing(status)
    with pytest.raises(kind):
        await ask(api)
    assert api.asked == [OVERVIEW]


async def test_it_is_given_up_after_a_few_attempts(api: HostileApi) -> None:
    api.misbehaviour = failing(503)
    with pytest.raises(TransientError, match=r"the HTTP API fails \(503: Not_Authorized\)"):
        await ask(api)
    assert api.asked == [OVERVIEW] * ATTEMPTS


async def test_all_attempts_together_take_no_longer_than_one_may(api: HostileApi) -> None:
    """The first fails at once, the second never ends."""
    api.misbehaviour = Misbehaviour("overview", lambda: silent() if len(api.asked) > 1 else iter(()), status=503)
    took: list[float] = []
    while len(took) < 3 and (not took or took[-1] >= 3.9):  # a machine that stands still says nothing of it
        api.asked.clear()
        begun = time.monotonic()
        with pytest.raises(TransientError):
            await ask(api, seconds=2)
        took.append(time.monotonic() - begun)
        assert len(api.asked) <= 2
    assert took[-1] < 3.9, took


async def test_other_addresses_are_asked_at_once(api: HostileApi, broker: Node) -> None:
    api.misbehaviour = failing(503)
    with hostile_api(broker.management_url) as other:
        assert await ask(api, other) == broker.cluster_name
    assert (api.asked, other.asked) == ([OVERVIEW], [OVERVIEW])
