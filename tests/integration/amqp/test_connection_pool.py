"""Connections that many share, on a real broker and where there is none."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from agent.amqp.connect import Connection, connect
from agent.amqp.connection_pool import REST, Pool
from agent.core.addresses.uri import parse
from agent.errors import BrokerError, TransientError
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.waiting import DEADLINE


class Key:
    """Of an endpoint, which is gone once nobody knows it."""


class Door:
    """Opens connections to one address and counts how often it was knocked at."""

    def __init__(self, uri: str) -> None:
        self._uri = parse(uri)
        self.knocks = 0

    async def __call__(self) -> Connection:
        self.knocks += 1
        return await connect(self._uri, where="upstream origin", name="pool", within=DEADLINE)


async def test_many_share_few_and_the_last_one_closes_the_door(broker: Node) -> None:
    pool, door = Pool(per_connection=100), Door(broker.uri())
    shared = await asyncio.gather(*(pool.acquire("there", door) for _ in range(250)))
    assert door.knocks == 3
    assert sorted(each.users for each in set(shared)) == [50, 100, 100]
    for each in shared:
        assert not each.connection.is_closed
        await each.release()
    assert all(each.connection.is_closed for each in shared)
    again = await pool.acquire("there", door)
    assert again not in shared
    await again.release()


async def test_who_leads_elsewhere_shares_nothing(broker: Node) -> None:
    pool, door = Pool(), Door(broker.uri())
    first, second = await pool.acquire("here", door), await pool.acquire("there", door)
    assert first is not second
    await first.release()
    await second.release()


async def test_a_connection_with_a_channel_that_can_not_be_closed_gets_no_further_user(broker: Node) -> None:
    """Its numbers, and what the broker keeps for them, come back only with its end."""
    pool, door = Pool(), Door(broker.uri())
    first = await pool.acquire("there", door)
    channel = await first.connection.channel()
    channel.is_midway = True  # the rest of its message won't come
    channel.leave()
    second = await pool.acquire("there", door)
    assert second is not first and not first.connection.is_closed
    await first.release()
    await second.release()


async def test_a_dead_broker_is_asked_once_for_all(lab: Lab) -> None:
    pool, door = Pool(), Door(f"amqp://127.0.0.1:{lab.ports.take()}")
    failures = await asyncio.gather(*(pool.acquire("there", door) for _ in range(500)), return_exceptions=True)
    assert door.knocks == 1
    assert {str(failure) for failure in failures if isinstance(failure, TransientError)} == {str(failures[0])}
    assert all(isinstance(failure, TransientError) for failure in failures)
    with pytest.raises(BrokerError):
        await pool.acquire("there", door)
    assert door.knocks == 1
    await asyncio.sleep(REST)
    with pytest.raises(BrokerError):
        await pool.acquire("there", door)
    assert door.knocks == 2


async def test_who_gives_up_waiting_leaves_nothing_behind(broker: Node) -> None:
    pool, door = Pool(), Door(broker.uri())
    waiting = [asyncio.create_task(pool.acquire("there", door)) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    shared = await waiting[1]
    assert (door.knocks, shared.users) == (1, 1)
    await shared.release()
    alone = asyncio.create_task(pool.acquire("there", door))
    await asyncio.sleep(0)
    alone.cancel()
    await asyncio.wait([alone])
    shared = await pool.acquire("there", door)
    assert shared.users == 1
    assert [each is shared.connection for each in pool.standing("there")] == [True]
    await shared.release()


async def test_what_nobody_uses_any_more_is_forgotten(broker: Node, lab: Lab) -> None:
    """Links that are set apart have connections by keys of their own, and such links come and go."""
    pool, door = Pool(), Door(broker.uri())
    keys = [Key() for _ in range(3)]
    for key in keys:
        await (await pool.acquire(key, door)).release()
    known = weakref.WeakSet(keys)
    del key, keys
    gc.collect()
    assert not known
    dead = Key()
    known.add(dead)
    with pytest.raises(BrokerError):
        await pool.acquire(dead, Door(f"amqp://127.0.0.1:{lab.ports.take()}"))
    del dead
    gc.collect()
    assert len(known) == 1  # those who come soon get the same error
    await asyncio.sleep(REST)
    shared = await pool.acquire("there", door)
    gc.collect()
    assert not known
    await shared.release()
