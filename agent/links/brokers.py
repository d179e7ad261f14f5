"""The state that all links of an agent share: connections, the downstream's identity, and what limits their use. And
the connections that one link holds.

Why: docs/decisions/0017-fair-shared-connections.md, docs/decisions/0018-control-connection.md,
docs/decisions/0033-builds-at-a-time.md
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final
from weakref import WeakValueDictionary

from agent.amqp.connect import Connection, LastHeard, connect_any
from agent.amqp.connection_pool import Pool, Shared
from agent.amqp.data.publish_tracker import PublishTracker
from agent.amqp.data.quarantined import Capture, Room
from agent.amqp.wire.ends import Permit
from agent.core.addresses.uri import AmqpUri
from agent.core.links.reconcile import differ_in_passwords
from agent.core.links.waits import CleanupAfter
from agent.core.model import Link
from agent.core.rules import names, quarantine
from agent.downstream.consumers import Consumers
from agent.errors import BrokerError, Side, happening_on
from agent.links.ends import End, Ends, federation_ends, timed, wired
from agent.links.flow_options import FlowOptions
from agent.links.quarantine import Lane, Quarantines
from agent.tasks import GuardedTasks, UnexpectedErrors, gather_both

QUARANTINE: Final = names.AGENT_PREFIX + "putting messages into quarantine"
PROBES: Final = names.AGENT_PREFIX + "probing"
OFFSETS: Final = names.AGENT_PREFIX + "remembering offsets"
TRIAL: Final = names.AGENT_PREFIX + "trying an exchange type"
LINKS_PER_CONTROL: Final = 1_000
CHANGED_AT_ONCE: Final = 100
"""The most links that build or remove at one broker: enough to keep it busy. It works for all of them in turn: of four
hundred, one that builds seven in a second leaves some without an answer for 30 s."""
CHANGED_BY_VHOST: Final = CHANGED_AT_ONCE // 2
LONGEST_CHANGE: Final = 15.0  # seconds that others wait for one link; twice what each takes where a busy broker has 100
DEDICATED_AT_ONCE: Final = 5  # links of one end
KEPT_TOGETHER: Final = 48 * 1024 * 1024  # bytes of messages that wait for their confirms


@dataclass
class Brokers:
    """The connections of an agent's links, and what else they share. `downstream` may change while links run; they have
    to be restarted then.

    `holds_removals` returns True if nothing of a link may be removed upstream now, since it isn't certain that the link
    is no longer defined.
    """

    downstream: tuple[AmqpUri, ...]
    cluster: str
    stall_after: float
    cleanup_after: CleanupAfter = field(default_factory=CleanupAfter)
    holds_removals: Callable[[Link], bool] = lambda _: False
    errors: UnexpectedErrors = field(default_factory=UnexpectedErrors)
    consumers: Consumers = field(default_factory=Consumers)  # of the downstream's queues
    is_shared: bool = False  # other agents of the group may run links of this one
    permit: Permit = field(default_factory=Permit)  # until when links may be run here
    room: Room = field(default_factory=lambda: Room(KEPT_TOGETHER))  # for what isn't confirmed yet, of all links
    quarantines: Quarantines = field(init=False)
    _heard: LastHeard = field(default_factory=LastHeard)
    _gates: WeakValueDictionary[Hashable, asyncio.Semaphore] = field(default_factory=WeakValueDictionary)
    # Links with connections of their own, until when.
    _dedicated: dict[tuple[End, str], float] = field(default_factory=dict)
    _controls: Pool = field(init=False)
    _probing: Pool = field(init=False)
    _sources: Pool = field(init=False)
    _destinations: Pool = field(init=False)

    def __post_init__(self) -> None:
        self.quarantines = Quarantines(self.errors)
        self._controls = Pool(LINKS_PER_CONTROL, errors=self.errors)
        self._probing = Pool(LINKS_PER_CONTROL, errors=self.errors)
        self._sources = Pool(errors=self.errors)
        self._destinations = Pool(errors=self.errors)

    def renew(self, ends: Mapping[End, End], tasks: GuardedTasks) -> None:
        """Give the open connections of these ends their other passwords; they stay open."""
        for pool in (self._controls, self._sources, self._destinations, self._probing):
            _renew(pool, ends, tasks)

    def federation_ends(self, link: Link) -> Ends:
        """The ends of a link that federates."""
        return federation_ends(link, self.downstream, self.cluster)

    @asynccontextmanager
    async def changing(self, end: End, vhost: str) -> AsyncIterator[None]:
        """A context in which a link of a vhost builds or removes something at a broker. Links wait only for others of
        their vhost, and of their broker; one that takes long, say for a blocked destination, goes on and gives its
        place away."""
        addresses = frozenset((uri.connect_host, uri.connect_port) for uri in end.uris)
        held: list[asyncio.Semaphore] = []

        def give_back() -> None:
            while held:
                held.pop().release()

        try:
            for key, width in (((addresses, vhost), CHANGED_BY_VHOST), (addresses, CHANGED_AT_ONCE)):
                gate = self._gates.setdefault(key, asyncio.Semaphore(width))
                await gate.acquire()
                held.append(gate)
            timer = asyncio.get_running_loop().call_later(LONGEST_CHANGE, give_back)
            try:
                yield
            finally:
                timer.cancel()
        finally:
            give_back()

    def may_have_dedicated(self, end: End, link_id: str, *, now: float, until: float) -> bool:
        """True if a link gets connections of its own for a while. If many need them, none of them is to blame: their
        broker is slow, and would be slower with a thousand connections more."""
        self._dedicated = {each: ends for each, ends in self._dedicated.items() if ends > now}
        known = (end, link_id)
        if known in self._dedicated or sum(each == end for each, _ in self._dedicated) < DEDICATED_AT_ONCE:
            self._dedicated[known] = until
        return known in self._dedicated

    async def control(self, end: End) -> Shared:
        """A shared connection for requests to a broker. No messages travel on it, so it is read whatever a destination
        takes."""
        return await self._controls.acquire(
            (end, None, None, self.is_shared),
            lambda: self._connect(end, [self._timed(uri) for uri in _shuffled(end.uris)]),
        )

    def asking(self, end: End) -> Connection | None:
        """The connection for requests to a broker, if one is open."""
        return next(self._controls.standing((end, None, None, self.is_shared)), None)

    async def _connect(
        self, end: End, uris: Sequence[AmqpUri], *, name: str = "", publishes: bool = False
    ) -> Connection:
        """Connect; where nothing is published later, a broker answers whatever alarm it has."""
        name = name or end.name
        connection = await connect_any(
            uris,
            where=end.where,
            name=name,
            default_vhost=end.default_vhost,
            heard=self._heard,
            wired=wired(end.terminus, name),
        )
        connection.wire.answers_while_blocked = not publishes
        connection.wire.permit = self.permit
        return connection

    def _timed(self, uri: AmqpUri) -> AmqpUri:
        """The URI with a short heartbeat if agents share links: where another agent takes over, the broker has to
        notice soon that this one is gone."""
        return timed(uri) if self.is_shared else uri

    async def source(self, end: End, uri: AmqpUri, *, dedicated: Hashable = None) -> Shared:
        """A shared connection to consume messages on. `uri` is the one that `control` is connected by, since its queues
        exist there.

        Only links with an equal `dedicated` share a connection, such as the id of one that shares it with no other.
        """
        return await self._sources.acquire(
            (end, uri, dedicated, self.is_shared), lambda: self._connect(end, [self._timed(uri)])
        )

    async def destination(self, end: End, uri: AmqpUri | None = None, *, dedicated: str | None = None) -> Shared:
        """A shared connection to publish messages on; by default to any of the URIs."""
        with happening_on(Side.DOWNSTREAM):
            return await self._destinations.acquire(
                (end, uri, dedicated),
                lambda: self._connect(end, _shuffled(end.uris) if uri is None else [uri], publishes=True),
            )

    async def probing(self, end: End, uri: AmqpUri) -> Shared:
        """A shared connection to publish probes on: an alarm there holds up nothing else."""
        return await self._probing.acquire(
            (end, uri, None), lambda: self._connect(end, [self._timed(uri)], name=PROBES, publishes=True)
        )

    async def remembering(self, end: End, uri: AmqpUri) -> Shared:
        """A shared connection to publish offsets on: an alarm there holds up nothing else."""
        return await self._probing.acquire(
            (end, uri, OFFSETS), lambda: self._connect(end, [self._timed(uri)], name=OFFSETS, publishes=True)
        )

    def sever(self, why: BrokerError) -> None:
        """End all connections of links at once: another agent of the group may run them."""
        for pool in (self._sources, self._destinations, self._controls, self._probing):
            pool.abort(why)

    async def trial(self, end: End, uri: AmqpUri) -> Connection:
        """Open a connection that may be lost."""
        return await self._connect(end, [uri], name=TRIAL)

    async def looking(self, end: End) -> Connection:
        """Open a separate connection, for a command."""
        return await self._connect(end, _shuffled(end.uris), name=QUARANTINE)

    def capture(
        self, source: End, up: Connection, *, link: str, options: FlowOptions, is_quorum: bool | None
    ) -> Callable[[PublishTracker], Capture] | None:
        """A function that creates the collector of messages for the quarantine beside their source, which they come
        from on `up`. None if they come from the quarantine itself, as they would go round for ever, or from a broker
        that is asked for AMQP 1.0, which has none. `is_quorum`: as in `Lane`."""
        if options.queue == quarantine.QUEUE or source.terminus is not None:
            return None

        async def connect() -> Connection:
            return await self._connect(source, [up.uri], name=QUARANTINE, publishes=True)  # by its password of now

        lane = Lane(
            link, up.wire.inbound, options.queue, is_quorum=is_quorum, destination=options.destination, opener=connect
        )
        return lambda target: self.quarantines.capture((source, up.uri), target, lane)

    def shown_certificates(self, ends: Ends, link_id: str) -> Iterator[tuple[Side, bytes]]:
        """The certificates, as DER, that the brokers at both ends have shown on the connections that the link may
        use."""
        for uri, dedicated in product((None, *ends.destination.uris), (None, link_id)):
            yield from _shown(Side.DOWNSTREAM, self._destinations.standing((ends.destination, uri, dedicated)))
        yield from _shown(Side.UPSTREAM, self._controls.standing((ends.source, None, None, self.is_shared)))


class Connections:
    """The connections of one link. `ask` comes first, then `flow`, or its two halves; `leave` gives back what `detach`
    returns, however far the link came.

    `on_blocked` is called with the reason why the destination takes no messages, and with None once it does.
    """

    __slots__ = ("_brokers", "_held", "_on_blocked", "_stop_listening", "_up", "down", "reads_alone")

    def __init__(self, brokers: Brokers, on_blocked: Callable[[str | None], None]) -> None:
        self.down: Shared | None = None
        self.reads_alone: str | None = None  # the link's id, if it shares the connection that it reads from with none
        self._brokers = brokers
        self._on_blocked = on_blocked
        self._up: Shared | None = None
        self._held: list[Shared] = []
        self._stop_listening: Callable[[], None] | None = None

    async def ask(self, end: End) -> Shared:
        """Get a connection for requests to the broker at one end."""
        return self._hold(await self._brokers.control(end))

    async def flow(
        self,
        source: End,
        uri: AmqpUri,
        destination: End,
        *,
        destination_uri: AmqpUri | None = None,
        dedicated: str | None = None,
        source_dedicated: str | None = None,
    ) -> tuple[Shared, Shared]:
        """Get the connections that messages come from and go to, opened concurrently; see `Brokers` for the arguments.

        While a destination takes nothing, nothing is read for it. So links share the connection that they read from
        only if their messages go to the same `destination_uri`.
        """
        return await gather_both(
            self.from_source(source, uri, dedicated=dedicated or source_dedicated or destination_uri),
            self.to_destination(destination, destination_uri, dedicated=dedicated),
        )

    async def from_source(self, source: End, uri: AmqpUri, *, dedicated: Hashable = None) -> Shared:
        dedicated = self.reads_alone or dedicated
        up = self._up = self._hold(await self._brokers.source(source, uri, dedicated=dedicated))
        return up

    async def to_destination(self, end: End, uri: AmqpUri | None = None, *, dedicated: str | None = None) -> Shared:
        down = self.down = self._hold(await self._brokers.destination(end, uri, dedicated=dedicated))
        self._stop_listening = down.connection.listen_blocked(self._on_blocked)
        return down

    def _hold(self, shared: Shared) -> Shared:
        self._held.append(shared)
        return shared

    def hold(self) -> None:
        """Take no more messages; those that come are counted."""
        if self._up is not None:
            self._up.connection.wire.inbound.hold(self, counts=True)

    def go_on(self) -> None:
        if self._up is not None:
            self._up.connection.wire.inbound.release(self)

    def detach(self) -> tuple[Shared, ...]:
        """Stop listening for alarms, and hold back no messages any more; return what is to be given to `leave`."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        self.go_on()
        held, self._held, self._up, self.down = tuple(self._held), [], None, None
        return held

    async def leave(self, held: tuple[Shared, ...]) -> None:
        for shared in held:
            await shared.release()


def _shown(side: Side, connections: Iterable[Connection]) -> Iterator[tuple[Side, bytes]]:
    for connection in connections:
        if (der := connection.wire.peer_certificate) is not None:
            yield side, der


def _shuffled(uris: Sequence[AmqpUri]) -> list[AmqpUri]:
    """The URIs in random order, which spreads links over interchangeable endpoints."""
    return random.sample(uris, len(uris))


def renewed_ends(changes: Iterable[tuple[Ends, Ends]]) -> dict[End, End]:
    """The ends that have other passwords and no other change, given all links as they were and as they are now.

    Links of different definitions may share an end. If only some of them have another password, that end isn't renewed:
    its connections are those of the links that still have the former password.
    """
    successors: dict[End, set[End]] = {}
    for former, now in changes:
        successors.setdefault(former.source, set()).add(now.source)
        successors.setdefault(former.destination, set()).add(now.destination)
    only = {former: found.pop() for former, found in successors.items() if len(found) == 1}
    return {former: now for former, now in only.items() if differ_in_passwords(former.uris, now.uris)}


def _renew(pool: Pool, ends: Mapping[End, End], tasks: GuardedTasks) -> None:
    """Move open connections to the ends with the other passwords, so that links that begin later share them."""
    uris = {former: _successors(former, now) for former, now in ends.items()}
    apart = {old: new for each in uris.values() for old, new in each.items()}

    def successor(key: Any) -> Hashable:
        """The new key for one of the keys that `Brokers` uses: an end, with what else keeps its connections apart."""
        end, uri, other, *more = key
        return ends.get(end, end), uris.get(end, {}).get(uri, uri), apart.get(other, other), *more

    moved: list[tuple[Any, Connection]] = pool.rekey(successor)
    for (end, *_), connection in moved:
        found = uris.get(end, {}).get(connection.uri)
        if found is not None:
            connection.renew(found, tasks)


def _successors(former: End, now: End) -> dict[AmqpUri, AmqpUri]:
    """The new URI for each former one, also in the form that they have if several agents share links."""
    pairs = list(zip(former.uris, now.uris, strict=True))
    return dict([*pairs, *((timed(old), timed(new)) for old, new in pairs)])
