"""The deadline of the lease: until when this agent may run links, so that one that was stopped or cut off doesn't
forward beside its successor."""

from __future__ import annotations

import asyncio
import math
from typing import Final

from agent.amqp.wire.ends import STANDSTILL, HeartbeatMissedError, Permit, StoodStillError
from agent.core.addresses.uri import DEFAULT_HEARTBEAT
from agent.core.replicas.sharing import LEASE, Sharing
from agent.errors import BrokerError, Side, TransientError
from agent.runtime.replicas.lease_channel import LeaseChannel

TICK: Final = 0.25
SURELY_KEPT: Final = 1.5 * DEFAULT_HEARTBEAT
"""Seconds for which no broker takes a silent connection for lost, and gives its messages to another agent, as long as
there is no company that makes heartbeats short: it waits for two intervals, and half of one may have been silent."""


def no_lease(why: str, cause: BrokerError) -> TransientError:
    """The error of links whose lease is lost: leases are in the downstream."""
    error = TransientError(f"downstream {why}: the lease of links is lost, and another agent may run them")
    error.__cause__, error.side = cause, Side.DOWNSTREAM
    return error


class LeaseDeadline:
    """Extends the permit to run links while nothing speaks against it."""

    def __init__(self, permit: Permit, sharing: Sharing) -> None:
        self._permit = permit
        self._sharing = sharing
        self._loop = asyncio.get_running_loop()
        self.had_peers_at = 0.0
        """The time at which other agents were last in the group; 0 where that is long ago."""
        self._moved_at = self._loop.time()
        self.is_severed = False
        """True from the time when others may run all links until it is known what runs here."""

    @property
    def has_ended(self) -> bool:
        return self._loop.time() > self._permit.until

    def why_ended(self) -> TransientError:
        """The error that links end with. The permit is extended several times a second, unless the agent itself stands
        still."""
        if self._loop.time() - self._moved_at > STANDSTILL:
            return StoodStillError()
        return no_lease("silent for too long", HeartbeatMissedError())

    def move(self, lease: LeaseChannel | None) -> None:
        now = self._moved_at = self._loop.time()
        if lease is not None:
            self._permit.until = self._end_of_lease(lease, now)
        elif self.is_severed and not self._sharing.failure:
            self._permit.until = -math.inf
        else:
            self._permit.until = self._end_if_alone(now)

    def _end_of_lease(self, lease: LeaseChannel, now: float) -> float:
        # Others can't answer during an alarm.
        if self._sharing.is_alone and lease.may_publish and self._sharing.hears_others(now):
            return self._end_if_alone(now)
        return lease.live_at + LEASE

    def _end_if_alone(self, now: float) -> float:
        """The end of the permit without peers or without a lease. An agent that was frozen may have got peers without
        knowing it, and so may one without a lease. Where it had none for long, its connections are such that brokers
        keep them for longer than a short standstill lasts."""
        if self._sharing.refusal:
            return math.inf
        return now + (LEASE if self.had_peers_at else SURELY_KEPT)
