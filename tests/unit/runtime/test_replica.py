"""One agent of a group, and until when it may run links."""

from __future__ import annotations

import asyncio
import math
from typing import Any, cast

import pytest

from agent.amqp.failures import NoAccessError
from agent.amqp.wire.permit import Permit
from agent.core.addresses.uri import DEFAULT_HEARTBEAT
from agent.core.replicas.messages import Report
from agent.core.replicas.sharing import LEASE
from agent.errors import TransientError
from agent.runtime.replicas import replica as replica_module
from agent.runtime.replicas.fence import SURELY_KEPT, TICK
from agent.runtime.replicas.lease_channel import LeaseChannel
from agent.runtime.replicas.replica import NO_ACCESS_FOR, Replica, Runs
from agent.tasks import GuardedTasks, UnexpectedErrors
from tests.unit.amqp.wire.virtual_loop import in_virtual_time
from tests.unit.core.some_links import shovel_link


class Lease:
    """One whose broker was heard of just now."""

    may_publish = True

    @property
    def live_at(self) -> float:
        return asyncio.get_running_loop().time()

    def say(self, message: bytes) -> None:
        """Nobody listens."""


class Nothing:
    """Runs no links."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


async def test_links_are_fenced_as_soon_as_another_agent_is_heard_of() -> None:
    """This one may be frozen at any moment, and others take its links over then."""
    permit = Permit()
    replica = Replica(tuple, GuardedTasks(UnexpectedErrors()), permit, cast("Runs", Nothing()))
    lease = replica._lease = cast("LeaseChannel", Lease())
    now = asyncio.get_running_loop().time()
    replica._sharing.begin(now)
    replica._fence.move(lease)
    assert permit.until >= now + SURELY_KEPT, "it is alone"
    replica._message_arrived(Report("r2", "second", frozenset(), frozenset()).encode())
    assert now + LEASE <= permit.until < now + LEASE + 1


async def test_one_that_never_had_company_outlasts_what_brokers_outlast_with_or_without_a_lease() -> None:
    """No broker gives its messages to others sooner, and new connections would deliver what was in flight again."""
    permit = Permit()
    replica = Replica(tuple, GuardedTasks(UnexpectedErrors()), permit, cast("Runs", Nothing()))
    now = asyncio.get_running_loop().time()
    for failure in ("", "the broker isn't reached"):
        replica._sharing.failure = failure
        replica._fence.move(None)
        assert now + SURELY_KEPT <= permit.until < now + 2 * DEFAULT_HEARTBEAT - 2 * TICK


async def test_without_a_lease_links_are_fenced_where_others_were_and_one_that_stood_still_ends_them() -> None:
    permit, severed = Permit(), list[None]()
    runs = Nothing()
    runs.sever = lambda: severed.append(None)  # type: ignore[attr-defined]
    replica = Replica(tuple, GuardedTasks(UnexpectedErrors()), permit, cast("Runs", runs))
    now = replica._fence.accompanied_at = asyncio.get_running_loop().time()
    replica._sharing.failure = "the broker isn't reached"
    replica._fence.move(None)
    assert now < permit.until < now + LEASE + 1
    permit.until = now - 1  # it stood still
    permit.end()
    assert severed
    assert permit.until > now, "it goes on with connections that are new"


async def test_one_that_may_not_have_leases_runs_all_links_without_end() -> None:
    permit = Permit()
    replica = Replica(tuple, GuardedTasks(UnexpectedErrors()), permit, cast("Runs", Nothing()))
    replica._sharing.failure = replica._sharing.refusal = "not permitted"
    replica._fence.move(None)
    assert permit.until == math.inf


async def test_one_that_lost_its_lease_and_reaches_none_is_fenced_again() -> None:
    permit, severed = Permit(), list[None]()
    runs = Nothing()
    runs.sever = lambda: severed.append(None)  # type: ignore[attr-defined]
    replica = Replica(tuple, GuardedTasks(UnexpectedErrors()), permit, cast("Runs", runs))
    replica._fence.is_severed = True
    replica._fence.move(None)
    permit.end()
    assert permit.until == -math.inf, "it isn't known yet what runs here"
    replica._go_on_without("the broker isn't reached")
    assert not severed
    permit.until = -math.inf  # it stood still
    permit.end()
    assert severed


def test_a_broker_whose_logins_are_always_slow_is_waited_for_ever_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    waited, has_tried = list[float](), asyncio.Event()

    async def connect_any(*_: object, within: float, **__: object) -> object:
        waited.append(within)
        await asyncio.sleep(within)
        if len(waited) == 5:
            has_tried.set()
        raise TransientError("no answer in time")

    monkeypatch.setattr(replica_module, "connect_any", connect_any)
    monkeypatch.setattr(replica_module, "delay", lambda *_: 0.0)

    async def live() -> None:
        replica = Replica(tuple, GuardedTasks(UnexpectedErrors()), Permit(), cast("Runs", Nothing()))
        running = asyncio.create_task(replica.run())
        await has_tried.wait()
        running.cancel()
        assert waited[:5] == [3.0, 6.0, 9.0, 10.0, 10.0]

    in_virtual_time(live())


def test_one_without_access_to_the_vhost_runs_all_links_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may be there, whose connections outlast what is taken from all for a moment."""
    refused = [NoAccessError("user 'u' may not access vhost '/'")]

    async def connect_any(*_: object, **__: object) -> object:
        raise refused[0]

    monkeypatch.setattr(replica_module, "connect_any", connect_any)

    async def live() -> None:
        replica = Replica(tuple, GuardedTasks(UnexpectedErrors()), Permit(), cast("Runs", Nothing()))
        running = asyncio.create_task(replica.run())
        await asyncio.sleep(NO_ACCESS_FOR - 10)
        assert replica.verdict(shovel_link()) is not True
        await asyncio.sleep(40)
        assert replica.verdict(shovel_link()) is True
        running.cancel()

    in_virtual_time(live())
