"""Takes out of a standby's copies what may go: what the source has consumed long enough ago, and what is older than
`keep`.

Messages are held first, and acknowledged once a look shows that they are the ones that may go (`StandbyTrim`). An
acknowledgement dead-letters nothing, and what was held when the agent ends goes back to its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import structlog

from agent.amqp.connect import Connection, connect_any
from agent.amqp.declares import declare
from agent.amqp.failures import RESOURCE_LOCKED
from agent.amqp.queue_messages import QueueHead
from agent.amqp.rpc import refusal
from agent.amqp.wire.channel import ChannelClosedError
from agent.core.addresses.uri import AmqpUri
from agent.core.migration.objects import ObjectKey
from agent.core.rules.names import TRIMMING
from agent.core.standby.settings import StandbySettings
from agent.core.standby.terms import FEWEST, StandingDoubt, TrimTerms
from agent.core.standby.trim import StandbyTrim, TrimDoubt, TrimRule
from agent.errors import BrokerError
from agent.links.ends import DOWNSTREAM
from agent.migration.figures import QueueFigures
from agent.slices import in_slices

OTHER_AGENT: Final = "another agent takes copies out, and shows what is in doubt"
MOST_OF_ONE: Final = 20_000
MOST_HELD: Final = 200_000
"""Messages of one queue, and of all, that are held at a time."""
_ALSO_BY_AGE: Final = frozenset({TrimDoubt.UNCOUNTED, TrimDoubt.NO_COPY})
"""Doubts with which copies aren't taken out by their age either."""
CONSUMED_HERE: Final = "nothing is taken out of it: it has consumers here, where clients connect after a promotion"
Figures: TypeAlias = Mapping[ObjectKey, tuple[QueueFigures | None, QueueFigures | None]]
"""Of the source, and of the copy."""

log = structlog.get_logger()


def rule_of(settings: StandbySettings) -> TrimRule:
    """The rule by the settings. What isn't set is looked for, too, and not used."""
    return TrimRule(after=settings.trim_after or 0.0, keep=settings.keep or 0.0, timeout=None)


async def lock_copies(uris: Sequence[AmqpUri], vhost: str, lock: str = TRIMMING) -> Connection | None:
    """A connection that has this lock of the vhost's copies until it ends, None if another one has it. Raises
    BrokerError."""
    connection = await connect_any([uri.in_vhost(vhost) for uri in uris], where=DOWNSTREAM, name=TRIMMING)
    found = await declare(connection, "queue", lock, exclusive=True, auto_delete=True)
    if not isinstance(found, ChannelClosedError):
        return connection
    await connection.close()
    if found.code == RESOURCE_LOCKED:
        return None
    raise refusal(connection, f"declaring queue {lock!r}", found)


@dataclass(slots=True)
class _Copy:
    trim: StandbyTrim
    timeout: float | None
    by_age_only: str = ""
    has_priorities: bool = False
    taken: int = 0
    head: QueueHead | None = None
    held_at: float = 0.0

    @property
    def held(self) -> int:
        return 0 if self.head is None else self.head.held


@dataclass(frozen=True, slots=True)
class _Vhost:
    """A vhost of the standby, locked by this connection since a time."""

    connection: Connection
    since: float


@dataclass(slots=True)
class Trimming:
    """`clock` is the loop's."""

    uris: tuple[AmqpUri, ...]
    settings: StandbySettings
    clock: Callable[[], float]
    rule: TrimRule
    _copies: dict[ObjectKey, _Copy] = field(default_factory=dict)
    _vhosts: dict[str, _Vhost] = field(default_factory=dict)

    async def look(
        self, figures: Figures, terms: TrimTerms, at: float, is_over: Callable[[], bool] = lambda: False
    ) -> dict[ObjectKey, str]:
        """Acknowledge what may go of what is held, and hold more, by figures that came `at` that time. Returns what is
        in doubt of each queue. What is refused of one queue is a doubt of that queue. No further queue is begun once
        it `is_over`."""
        await self._forget(self._copies.keys() - figures.keys())
        barred: dict[str, str] = {}
        doubts: dict[ObjectKey, str] = {}
        async for key, (source, copy) in in_slices(figures.items()):
            if is_over():
                break
            if key.vhost not in barred:
                barred[key.vhost] = await self._why_barred(key.vhost)
            if why := barred[key.vhost]:
                doubts[key] = why
                continue
            if doubt := await self._look_at(key, source, copy, terms, at):
                doubts[key] = doubt
        return doubts

    async def _look_at(
        self, key: ObjectKey, source: QueueFigures | None, copy: QueueFigures | None, terms: TrimTerms, at: float
    ) -> str:
        """The doubt of one queue, empty without one. What was known of it is forgotten as far as its terms changed."""
        known = self._copies.get(key)
        timeout, by_age_only = terms.timeouts.get(key), terms.by_age_only.get(key, "")
        if known is not None and (key in terms.never or known.timeout != timeout):
            await self._forget([key])
            known = None
        if key in terms.never:
            return f"nothing is taken out of it: {terms.never[key]}"
        if known is None:
            known = self._copies[key] = _Copy(StandbyTrim(replace(self.rule, timeout=timeout), at), timeout)
        elif bool(by_age_only) != bool(known.by_age_only):
            known.trim.forget_source(at)
        known.by_age_only = by_age_only
        try:
            return await self._look(key, source, copy, at)
        except BrokerError as error:
            await self._release(known)
            return str(error)

    async def _why_barred(self, vhost: str) -> str:
        """Only one agent may take from a vhost's queues: none knows what another one takes. What was known is forgotten
        with the lock, and figures have to show all that another one took before anything is known again."""
        known = self._vhosts.get(vhost)
        if known is None or known.connection.is_closed:
            await self._forget([key for key in self._copies if key.vhost == vhost])
            self._vhosts.pop(vhost, None)
            try:
                connection = await lock_copies(self.uris, vhost)
            except BrokerError as error:
                return str(error)
            if connection is None:
                return OTHER_AGENT
            self._vhosts[vhost] = known = _Vhost(connection, self.clock())
        return "" if self.clock() - known.since >= self.rule.late else str(TrimDoubt.NEW)

    async def _look(self, key: ObjectKey, source: QueueFigures | None, copy: QueueFigures | None, now: float) -> str:
        known = self._copies[key]
        allowed = known.trim.look(
            now,
            None if source is None else source.of_source,
            None if copy is None else copy.of_copy,
            taken=known.taken,
            held=-1 if source is None or source.unacknowledged is None else source.unacknowledged,
        )
        trimmed = 0 if self.settings.trim_after is None or known.by_age_only else allowed.messages
        expired = 0 if self.settings.keep is None else known.trim.expired(now)
        most = max(trimmed, expired)
        head = known.head
        if head is not None and known.held and allowed.known_at >= known.held_at:
            if not await head.is_alone():
                await self._release(known)
                return CONSUMED_HERE
            number = min(most, known.held)
            head.acknowledge(number)
            known.taken += number
            most -= number
            if number:
                log.info("copies taken out", vhost=key.vhost, queue=key.name, messages=number)
        elif head is not None and not known.held:
            await self._release(known)
        if known.has_priorities:
            return f"nothing is taken out of it: {StandingDoubt.PRIORITIES}"
        if known.head is None and most > 0 and not await self._hold(key, known, most):
            return CONSUMED_HERE
        if self.settings.trim_after is None:
            return ""
        if known.by_age_only and allowed.doubt not in _ALSO_BY_AGE:
            taken = "nothing" if self.settings.keep is None else "only what is older than `keep`"
            return f"{taken} is taken out of it: {known.by_age_only}"
        return allowed.doubt or ""

    async def _hold(self, key: ObjectKey, known: _Copy, most: int) -> bool:
        """Returns False where somebody else consumes from the queue."""
        room = MOST_HELD - sum(each.held for each in self._copies.values())
        if (count := min(most, MOST_OF_ONE, room)) <= 0:
            return True
        known.head = QueueHead(self._vhosts[key.vhost].connection, key.name)
        if not await known.head.is_alone():
            return False
        await known.head.hold(max(count, FEWEST))
        known.held_at = self.clock()
        if known.head.has_priorities:  # its first messages aren't the oldest
            known.has_priorities = True
            await self._release(known)
        return True

    async def _forget(self, gone: Iterable[ObjectKey]) -> None:
        for key in tuple(gone):
            await self._release(self._copies.pop(key))

    async def give_back(self) -> None:
        """All that is held goes back to its place; what is known of the copies stays."""
        for known in self._copies.values():
            await self._release(known)

    async def _release(self, known: _Copy) -> None:
        """Let what is held go back to its place."""
        head, known.head = known.head, None
        if head is not None:
            with suppress(BrokerError):
                await head.close()

    async def close(self) -> None:
        """Close all connections: what is held goes back to its place."""
        self._copies.clear()
        for vhost in self._vhosts.values():
            await vhost.connection.close()
        self._vhosts.clear()
