"""One move of a queue's messages, from a look at what is there to the account of what became of it.

Messages travel as a link's do, see `Flow`. Those that stay are held unacknowledged, so that what follows passes them,
and go back to their places at the end.

Why: docs/decisions/0065-moves-on-the-data-path.md
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from typing import Final

from agent.amqp.connect import Connection, connect_any
from agent.amqp.data.publish_tracker import Counts
from agent.amqp.data.quarantined import Room
from agent.amqp.data.rewriting import Destination, PropertyChanges, Untouched
from agent.amqp.declares import Kind, is_replicated, look, why_not_emptied
from agent.amqp.failures import blames_message
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.methods import Call
from agent.core.addresses.uri import Mechanism
from agent.core.links.read_limits import RateLimit
from agent.core.rules.moves import IN_DOUBT, NOT_ALLOWED, MoveAccount
from agent.core.rules.names import AGENT_PREFIX
from agent.core.text import counted
from agent.errors import BrokerError, FailureKind, PermanentError, Side, TransientError
from agent.links.ends import End
from agent.links.flow import Flow
from agent.links.flow_options import FlowOptions, PathMemory
from agent.runtime.move_chooser import SHOWN, Exchanges, MoveChooser, MoveOptions, StripDeaths
from agent.tasks import gather_both, run_until_first

NAME: Final = AGENT_PREFIX + "moving"
MOST_BYTES_HELD: Final = 256 * 1024 * 1024  # of bodies, which the source's broker may keep in memory
KEPT: Final = 64 * 1024 * 1024  # bytes of messages until they are confirmed
BETWEEN_LOOKS: Final = 0.25
COMES_BACK_WITHIN: Final = 1.0
SETTLING: Final = 0.5
"""Seconds until the source's channel is closed. For a quorum queue it keeps acknowledgements while more than 32 aren't
applied yet, and forgets what it keeps; nothing shows when it has none. Where messages stay in between, the others are
acknowledged one by one, so that there are many."""
IDLE_LOOKS: Final = 2  # in which nothing came and nothing was there: what is on its way comes sooner
MOST_SESSIONS: Final = 20  # that end over a message, one after another


class Move:
    """One move. `stop` ends it early; what is in flight is settled even then."""

    def __init__(self, source: End, destination: End, options: MoveOptions) -> None:
        self.account = MoveAccount()
        self.blocked: str | None = None  # why the destination takes nothing
        self._ends = source, destination
        self._options = options
        self._path = PathMemory()
        self._room = Room(KEPT)
        self._stopped = asyncio.Event()
        self.counts = Counts()  # of the session
        self._moved_before = 0
        self._has_enough = False  # of what stays
        self._exchanges: dict[str, str] = {}  # that were looked for, see `Exchanges`

    @property
    def moved(self) -> int:
        return self._moved_before + self.counts.forwarded

    @property
    def wanted(self) -> int:
        """The number of messages to look at, as far as that is known."""
        limit = None if self._options.is_choosy else self._options.limit
        return min(self.account.there, limit or self.account.there)

    @property
    def staying(self) -> int:
        return sum(self.counts.unpublishable.values())

    def stop(self, why: str) -> None:
        if not self._stopped.is_set():
            self.account.notes.append(why)
            self._stopped.set()

    async def run(self) -> None:
        """Move what is there; raises BrokerError if it can't begin."""
        account, began = self.account, time.monotonic()
        async with AsyncExitStack() as opened:
            source, destination = await gather_both(*map(_connected, self._ends))
            opened.push_async_callback(source.close)
            opened.push_async_callback(destination.close)
            account.there = await count_ready(source, self._options.queue)
            if why := await why_not_emptied(source, self._options.queue):
                raise PermanentError(f"queue {self._options.queue!r} {why}", where=source.where)
            await self._check_destination(destination)
            with suppress(BrokerError):  # is in the account
                await self._sessions(opened, source, destination)
            account.seconds = time.monotonic() - began
            with suppress(BrokerError):
                account.waiting = await self._count_waiting(source)
                if account.left and not source.server.forgives_nacks:
                    account.counts_deliveries = bool(await is_replicated(source, self._options.queue))
        wanted = self._options.destination
        if self._options.is_dry and self._options.goes_to_one_place and wanted is not None and account.first:
            going = min(account.there, self._options.limit or account.there)
            account.destinations = Counter({(wanted.exchange or "", wanted.routing_key or ""): going})

    async def _sessions(self, opened: AsyncExitStack, source: Connection, destination: Connection) -> None:
        """Move, and once more each time that the destination closes something over a message: what it shows is known in
        the next session, and the message stays."""
        fruitless = 0
        while self.account.there and fruitless < MOST_SESSIONS:
            self.counts, self._has_enough, before = Counts(), False, self._moved_before
            try:
                await self._session(source, destination)
            except BrokerError as error:
                fruitless = 0 if self._moved_before > before else fruitless + 1
                self.account.error = error
                if not self._shows_which_stays(error) or fruitless == MOST_SESSIONS:
                    raise
                if destination.is_closed:
                    destination = await _connected(self._ends[1])
                    opened.push_async_callback(destination.close)
                self.account.error = None
            else:
                break

    def _shows_which_stays(self, error: BrokerError) -> bool:
        """True if the next session knows from this error which messages to leave where they are."""
        failure = error.failure
        if failure.side is not Side.DOWNSTREAM:
            return False
        if failure.kind is FailureKind.PERMISSION and self._options.destination is None:
            self._exchanges[failure.object] = NOT_ALLOWED
            return True
        return blames_message(error)

    async def _count_waiting(self, source: Connection) -> int:
        """The number of messages in the queue. It takes a moment until a quorum queue counts what goes back to it, and
        what was acknowledged; others may publish or consume meanwhile."""
        account, deadline = self.account, time.monotonic() + COMES_BACK_WITHIN
        expected = max(account.there - account.moved, sum(account.left.values()))
        while True:
            waiting = await count_ready(source, self._options.queue)
            if waiting == expected or time.monotonic() > deadline:
                return waiting
            await asyncio.sleep(BETWEEN_LOOKS)

    async def _session(self, source: Connection, destination: Connection) -> None:
        limit = self._limit()
        if limit == 0:
            return
        options = self._options
        flow = Flow(
            FlowOptions(
                options.queue,
                "move",
                Destination() if options.is_choosy else options.destination or Destination(),
                is_quorum=True,  # AMQP doesn't show it, and what is done for a quorum queue does no harm to another
                limit=limit,
                keeps_back=True,
                rate_limit=None if options.rate is None else RateLimit(options.rate),
                opens_first=True,  # it has messages, and none may be in doubt because a channel was refused
            ),
            up=source,
            down=destination,
            counts=self.counts,
            path=self._path,
            room=self._room,
        )
        flow.on_stay = lambda: self._limit_held(flow)
        exchanges = Exchanges(source, destination, self._exchanges)
        chooser = MoveChooser(options, self.account, exchanges, flow, returns_are_counted=_counts(source))
        stop_listening = destination.listen_blocked(self._note_blocked)
        try:
            await flow.start(self._rewriter(destination), chooser=chooser if options.is_choosy else None)
            await run_until_first(
                flow.finished(), self._stop(), _broken(flow), self._watch(flow, source), exchanges.look()
            )
            exchanges.close()  # answers of the source have to be read
            await flow.close()
            await asyncio.sleep(SETTLING)
        except TimeoutError:
            raise TransientError("not all was confirmed in time", where=destination.where) from None
        finally:
            stop_listening()
            exchanges.close()
            await flow.leave()
            self._note_session()

    async def _stop(self) -> None:
        await self._stopped.wait()

    def _limit(self) -> int | None:
        """The number of deliveries to take in the next session; None if nothing limits them."""
        options, there = self._options, self.account.there - self._moved_before
        if options.limit is not None and self._moved_before >= options.limit:
            return 0
        if options.goes_to_one_place and options.is_dry:
            there = min(there, SHOWN)
        elif options.until_empty:
            return None if options.limit is None or options.is_choosy else options.limit - self._moved_before
        if options.limit is not None and not options.is_choosy:
            there = min(there, options.limit - self._moved_before)
        return max(0, there)

    def _limit_held(self, flow: Flow) -> None:
        count, size = flow.kept_back
        if self._has_enough or (count < self._options.scan and size < MOST_BYTES_HELD):
            return
        self._has_enough = True
        flow.take_no_more()
        is_all = not self._options.until_empty and count + self.moved + flow.in_flight >= self.account.there
        if not self._options.is_dry and not is_all:
            self.account.notes.append(
                f"{counted(count, 'message')} of {size:,} bytes stay, and no more may be held together (--scan)"
            )

    def _note_session(self) -> None:
        account, counts = self.account, self.counts
        account.left = Counter(counts.unpublishable)
        if in_doubt := counts.given_back - account.left.total():
            account.left[IN_DOUBT] = in_doubt
        self._moved_before += counts.forwarded
        account.moved = self._moved_before
        account.taken = self._moved_before - counts.forwarded + counts.taken
        counts.forwarded = 0

    def _note_blocked(self, reason: str | None) -> None:
        self.blocked = reason

    def _rewriter(self, destination: Connection) -> Untouched:
        user, _ = destination.uri.login
        users = frozenset() if Mechanism.EXTERNAL in destination.uri.mechanisms else frozenset({user.encode()})
        changes = PropertyChanges(users=users)
        return StripDeaths(changes) if self._options.strips_deaths else Untouched(changes)

    async def _watch(self, flow: Flow, source: Connection) -> None:
        """Return once nothing is there any more, though less came than was there at the beginning: messages expire, and
        others consume some. And keep the prefetch at a size that suits the path, and what stays."""
        idle, before = 0, -1
        while idle < IDLE_LOOKS:
            await asyncio.sleep(BETWEEN_LOOKS)
            if (wanted := flow.better_prefetch(asyncio.get_running_loop().time())) is not None:
                await flow.resize(wanted)
            taken, before = before, self.counts.taken
            is_idle = taken == before and not (flow.in_flight or flow.unread or source.wire.inbound.is_held)
            idle = idle + 1 if is_idle and not await count_ready(source, self._options.queue) else 0

    async def _check_destination(self, connection: Connection) -> None:
        """Raise BrokerError if the destination is missing: nothing is declared for a move."""
        wanted = self._options.destination
        if wanted is None:
            return
        if wanted.exchange:
            await _demand_there(connection, "exchange", wanted.exchange)
        elif wanted.routing_key is not None:
            await _demand_there(connection, "queue", wanted.routing_key)


async def _connected(end: End) -> Connection:
    return await connect_any(end.uris, where=end.where, name=NAME, default_vhost=end.default_vhost)


def _counts(source: Connection) -> bool:
    """True if each message that goes back is one step nearer to being dropped by a quorum queue."""
    return source.server.limits_deliveries and not source.server.forgives_nacks


async def _broken(flow: Flow) -> None:
    done, _ = await asyncio.wait(flow.ends, return_when=asyncio.FIRST_COMPLETED)
    raise flow.explain(next(iter(done)))


async def count_ready(connection: Connection, queue: str) -> int:
    return int((await _demand_there(connection, "queue", queue))["messages"])


async def _demand_there(connection: Connection, kind: Kind, name: str) -> Call:
    found = await look(connection, kind, name, spare=None)
    if isinstance(found, ChannelClosedError):
        raise TransientError(f"{kind} {name!r} doesn't exist in vhost {connection.vhost!r}", where=connection.where)
    return found
