"""One agent of a group, and until when it may run links."""

from __future__ import annotations

import asyncio
import math
from typing import Any, cast

from agent.amqp.wire.permit import Permit
from agent.core.replicas.messages import Report
from agent.core.replicas.sharing import LEASE
from agent.runtime.replicas.lease_channel import LeaseChannel
from agent.runtime.replicas.replica import Replica, Runs
from agent.tasks import GuardedTasks, UnexpectedErrors


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
    replica._fence(lease)
    assert permit.until == math.inf, "it is alone"
    replica._message_arrived(Report("r2", "second", frozenset(), frozenset()).encode())
    assert now + LEASE <= permit.until < now + LEASE + 1
