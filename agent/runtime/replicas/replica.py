"""This agent as one of a group: its lease at the broker, and the messages between it and the others."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol
from uuid import uuid4

import structlog

from agent.amqp.connect import Connection, connect_any
from agent.amqp.failures import NoAccessError
from agent.amqp.wire.ends import EndOfStreamError, Permit
from agent.core.addresses.uri import AmqpUri
from agent.core.links.lifecycle import Pause
from agent.core.links.waits import delay
from agent.core.model import Link
from agent.core.replicas import messages
from agent.core.replicas.messages import Asked, Leaving, Removed, Report
from agent.core.replicas.sharing import SURELY_ENDED, Sharing, Verdict
from agent.core.replicas.slots import SLOTS, Held, Token, read_token, slot_of
from agent.core.status.acknowledgements import Acknowledgement
from agent.errors import AgentError, BrokerError, Failure, Side
from agent.runtime.replicas.lease_channel import TICK, LeaseChannel, LeaseDeadline, LeasesRefusedError, no_lease
from agent.tasks import GuardedTasks

LEASES: Final = "federation-agent: leases of links"
MESSAGES: Final = "federation-agent: messages to other agents of the group"
WHERE: Final = "downstream"
HEARTBEAT: Final = 1
"""Seconds. A broker takes a connection for lost after two to three of them."""
CONNECT_WITHIN: Final = 3.0
CONNECT_AT_LAST: Final = 10.0
"""The longest time for a connection, in seconds; each attempt waits longer, up to this: a login may always be slow,
such as where a broker asks a directory that is slow."""
LONGEST_PAUSE: Final = 2.0
REPORT_EVERY: Final = 2.0
RENEW_EVERY: Final = 60.0
"""Brokers end consumers that keep a message for long without acknowledging it, by default after 30 minutes."""
LOST_FOR: Final = 5.0  # a slot that nobody holds gets another token
SEEN_WITHIN: Final = 0.1
RELEASED_WITHIN: Final = 20.0
NO_ACCESS_FOR: Final = 20.0
"""Seconds after which a user without access to the vhost counts as refused. Before that, access may have been taken
from all for a moment, and the other agents keep the connections that they have."""
STEADY: Final = 5.0  # a lease that lasted for so long is asked for again at once
REFUSED_FOR: Final = 30.0
ANSWER_EVERY: Final = 1.0
ALONE_FOR: Final = 300.0
LOOK_EVERY: Final = 0.02  # whether links have ended
NOTHING_STORED: Final = Token()

log = structlog.get_logger()


class Commanded(Protocol):
    """Receives the requests of operators that other agents pass on."""

    def hear_nothing(self) -> None:
        """From now on no requests arrive that operators make to other agents."""

    def asked_by_another(self, link_id: str, action: str, pause: Pause | None) -> None:
        """An operator made this request to another agent."""

    def asked_in_vain(self, link_id: str, action: str, pause: Pause | None) -> None:
        """An operator made this request to this agent, and others may not have received it."""


class GroupLinks(Protocol):
    """The links that share the group's leases."""

    @property
    def commands(self) -> Commanded: ...

    def share(self, *, at_once: bool = False) -> None:
        """Verdicts may have changed; `at_once` if they will change again in a moment."""

    def slots_at_work(self) -> Container[int]:
        """The slots of which any link is connected."""

    def begin_sharing(self) -> None:
        """Another agent is in the group."""

    def end_sharing(self) -> None:
        """No other agent has been in the group for long."""

    def recall(self, slot: int) -> None:
        """Another agent has changed which links of a slot are paused or finished."""

    def sever(self, why: BrokerError) -> None:
        """Others may run all links of this agent from now on: nothing more may be read or written for them."""

    def removed_by_another(self, link_id: str) -> None:
        """A link that is no longer defined is gone upstream."""


class Replica:
    """This agent in its group. `run` is kept by its owner; `hand_over` comes before it is cancelled."""

    def __init__(
        self, uris: Callable[[], Sequence[AmqpUri]], tasks: GuardedTasks, permit: Permit, runs: GroupLinks
    ) -> None:
        self._uris = uris
        self._tasks = tasks
        self._runs = runs
        self._id = uuid4().hex
        self._name = self._group = ""
        self.prefers_quorum = False  # for leases that outlive a node of the downstream
        self._sharing = Sharing(self._id)
        self._deadline = LeaseDeadline(permit, self._sharing)
        self._are_links_known = asyncio.Event()
        self._lease: LeaseChannel | None = None
        self._connections: tuple[Connection, ...] = ()
        self._arrived: dict[int, Held] = {}
        self._releasing: set[int] = set()
        self._reported_at = self._healed_at = self._answered_at = 0.0
        self._has_new_links = self._is_stopping = False
        self._logged = ""
        self._no_access_since: float | None = None
        self._no_access_at = 0.0  # the last time
        self._loop = asyncio.get_running_loop()
        permit.on_end = self._end_links

    # What the supervisor says and asks

    def join(self, group: str, name: str) -> None:
        """Set the group to share links with. In another one than before, others hold what this one held."""
        self._name = name
        if group != self._group:
            self._group = group
            self._lose()
            self._sharing.others.members.clear()

    def move(self) -> None:
        """Give up the lease, because the broker has other addresses: its leases are there."""
        self._lose()

    def renew(self, successors: Mapping[AmqpUri, AmqpUri]) -> None:
        """Use the other passwords of the broker's URIs."""
        timed = {_timed(former): _timed(now) for former, now in successors.items()}
        for connection in self._connections:
            if connection.uri in timed and not connection.is_closed:
                connection.renew(timed[connection.uri], self._tasks)

    def follow(self, links: Iterable[Link]) -> None:
        """Set the links that are defined now."""
        self._has_new_links |= self._sharing.follow(links, self._loop.time())
        self._are_links_known.set()

    def verdict(self, link: Link) -> Verdict:
        return self._sharing.verdict(link.id, link.kind, self._loop.time())

    @property
    def has_peers(self) -> bool:
        """True if there are other agents in the group, or were a moment ago."""
        return bool(self._deadline.had_peers_at)

    def holds(self, slot: int) -> bool:
        return slot in self._sharing.held

    def stored(self, slot: int) -> Token:
        """The state that is stored with a slot; an empty one where the slot isn't held here."""
        held = self._sharing.held.get(slot)
        return NOTHING_STORED if held is None else held.token

    def _store(self, slot: int, changed: Token) -> None:
        """Store a state for the next holder of the slot, which may be this agent after a restart."""
        held = self._sharing.held.get(slot)
        if held is not None and self._lease is not None and changed is not held.token:
            self._lease.put_token(slot, held.renew(self._loop.time(), changed).encode())

    def remember_pause(self, link_id: str, pause: Pause | None) -> None:
        slot = slot_of(link_id)
        self._store(slot, self.stored(slot).with_paused(link_id, pause))

    def remember_finished(self, link_id: str, purpose: str | None) -> None:
        slot = slot_of(link_id)
        self._store(slot, self.stored(slot).with_finished(link_id, purpose))

    def remember_acknowledged(self, links: Mapping[str, Acknowledgement | None]) -> None:
        """Store acknowledgements, with one token for all links of a slot."""
        by_slot: dict[int, dict[str, Acknowledgement | None]] = defaultdict(dict)
        for link_id, known in links.items():
            by_slot[slot_of(link_id)][link_id] = known
        for slot, of_slot in by_slot.items():
            self._store(slot, self.stored(slot).with_acknowledged(of_slot))

    def ask_others(self, link_id: str, action: str, pause: Pause | None) -> bool:
        """Pass a request on to the other agents. The one that runs the link carries it out; the others keep the last
        request, should that agent be gone. False if they can't be reached now."""
        if self._lease is None:
            return False
        self._lease.pass_on(Asked(self._id, link_id, action, pause))
        return True

    def announce_removed(self, link_id: str) -> None:
        if self._lease is not None and self._lease.may_publish and not self._sharing.is_alone:
            self._lease.say(Removed(self._id, link_id).encode())

    def give_up(self, link_id: str) -> None:
        """Give up the slot of a link that can't run here: another replica may reach what this one doesn't."""
        slot = slot_of(link_id)
        tried = self._sharing.tried(slot, time.time())
        if tried is None or self._lease is None or not self._lease.may_publish or slot in self._releasing:
            return
        self._store(slot, replace(self.stored(slot), tried=tried))
        self._release_soon(slot)

    # The connection

    async def run(self) -> None:
        """Keep the lease until cancelled, and connect again where the connection is lost."""
        attempt = 1
        while True:
            began, is_settled = math.inf, False
            try:
                within = min(CONNECT_WITHIN * attempt, CONNECT_AT_LAST)
                async with (
                    await self._connect(LEASES, within) as connection,
                    await self._connect(MESSAGES, within) as talk,
                ):
                    self._connections = connection, talk
                    began, self._no_access_since = self._loop.time(), None
                    await self._serve(connection, talk)
            except AgentError as error:
                is_settled = isinstance(error, LeasesRefusedError) and self._sharing.is_alone
                self._fail(error)
            except Exception:
                self._go_on_without("an unexpected error, see the log")
                raise
            attempt = 1 if self._loop.time() - began > STEADY else attempt + 1
            await asyncio.sleep(REFUSED_FOR if is_settled else delay(attempt, LONGEST_PAUSE, 0.5))

    async def keep_deadline(self) -> None:
        """Keep the deadline until cancelled, beside `run`, and also while that has failed: without a lease nothing else
        does it."""
        while True:
            await asyncio.sleep(TICK)
            if self._sharing.leased_at is None:
                if self._deadline.has_ended:
                    self._end_links()
                self._deadline.move(None)

    async def _connect(self, name: str, within: float) -> Connection:
        return await connect_any([_timed(uri) for uri in self._uris()], where=WHERE, name=name, within=within)

    async def _serve(self, connection: Connection, talk: Connection) -> None:
        await self._are_links_known.wait()
        lease = LeaseChannel(
            connection, talk, self._group, self._id,
            tasks=self._tasks, on_token=self._token_arrived, on_lost=self._slot_lost, on_message=self._message_arrived,
        )  # fmt: skip
        try:
            await lease.open()
            self._lease = lease
            lacking = await lease.subscribe(prefers_quorum=self.prefers_quorum)
            if self._lease is not lease:  # the group or the broker is another by now
                return
            if self._deadline.is_severed:  # so soon that links haven't been placed without a lease yet
                self._runs.share(at_once=True)
            self._sharing.begin(self._loop.time())
            self._deadline.is_severed, self._logged = False, ""
            self._deadline.move(lease)
            self._report(asks=True)
            for slot in lacking:
                lease.put_token(slot, Token().encode())
            await self._watch(lease)
        finally:
            if self._deadline.has_ended:
                self._end_links()
            self._lose()

    async def _watch(self, lease: LeaseChannel) -> None:
        while self._has(lease):
            done, _ = await asyncio.wait(lease.ends, timeout=TICK, return_when=asyncio.FIRST_COMPLETED)
            if done:
                raise lease.explain(done.pop())
            if self._has(lease):
                self._tick(lease)

    def _has(self, lease: LeaseChannel) -> bool:
        return self._lease is lease and not self._deadline.has_ended

    def _fail(self, error: AgentError) -> None:
        text = str(error)
        if self._is_refused(error) and self._sharing.is_alone:
            self._sharing.refusal = text
            message = "links can't be shared with other agents, and this one runs all of them"
        else:
            message = "no leases of links"
        if text != self._logged:
            log.warning(message, reason=text)
        self._logged = text
        self._go_on_without(text, error.failure if isinstance(error, BrokerError) else None)

    def _is_refused(self, error: AgentError) -> bool:
        """True if this replica gets no leases as long as its permissions stay as they are."""
        if not isinstance(error, NoAccessError):  # a node that restarts says nothing of permissions
            return isinstance(error, LeasesRefusedError)
        now = self._loop.time()
        if self._no_access_since is None or now - self._no_access_at > NO_ACCESS_FOR:
            self._no_access_since = now
        self._no_access_at = now
        return now - self._no_access_since >= NO_ACCESS_FOR

    def _go_on_without(self, reason: str, facts: Failure | None = None) -> None:
        """Go on without a lease: links that no other agent runs, as far as is known, run all the same."""
        if self._deadline.has_ended:
            self._end_links()
        self._sharing.failure = reason
        self._sharing.facts = None if facts is None else replace(facts, side=Side.DOWNSTREAM, is_permanent=False)
        self._deadline.is_severed = False
        self._deadline.move(None)
        self._runs.share()

    def _lose(self, why: BrokerError | None = None) -> None:
        """Note that the lease is gone, or may be, and end links that others may run now."""
        if self._lease is None:
            return
        lease, self._lease = self._lease, None
        self._arrived.clear()
        self._runs.commands.hear_nothing()
        for asked in lease.unconfirmed:
            self._runs.commands.asked_in_vain(asked.link, asked.action, asked.pause)
        was_leased = self._sharing.leased_at is not None
        may_run_elsewhere = self._sharing.lose() and not self._is_stopping
        if was_leased:  # otherwise it is as it was when the lease before this one was lost
            self._deadline.is_severed = may_run_elsewhere
        self._deadline.move(None)
        if may_run_elsewhere:
            log.warning("the lease of links is lost: other agents of the group may run them now")
            self._runs.sever(why or no_lease("lost", EndOfStreamError()))
            # Links first see why their connections ended: to wait for a lease is no reason by itself.
            self._loop.call_later(SEEN_WITHIN, self._runs.share)
        else:
            self._runs.share()

    def _end_links(self) -> BrokerError:
        """End the links: the agent was stopped, or cut off from the broker, for so long that others may run them.
        Returns the error that they end with."""
        why = self._deadline.why_ended()
        if self._sharing.leased_at is not None:
            self._lose(why)
        if not self._deadline.is_severed:
            log.warning("other agents of the group may have taken the links", reason=str(why))
            self._deadline.move(None)
            self._runs.sever(why)
        return why

    def _slot_lost(self, slot: int) -> bytes | None:
        """Note that the queue of a slot is gone; returns the token to restore, if this replica had it."""
        log.warning("a lease's queue is gone, and is declared again", slot=slot)
        arrived = self._arrived.pop(slot, None)
        held = self._sharing.held.pop(slot, None) or arrived
        self._runs.share()
        return None if held is None else held.renew(self._loop.time()).encode()

    # By the clock

    def _tick(self, lease: LeaseChannel) -> None:
        now = self._loop.time()
        lease.beat()
        if self._sharing.listen(may_publish=lease.may_publish, now=now):
            self._report(asks=True)
        self._deadline.move(lease)
        self._note_peers(now)
        if self._sharing.forget_kept(now):
            self._runs.share()
        if not lease.may_publish:
            return
        self._sharing.expire(now)
        if self._has_new_links or now - self._reported_at >= REPORT_EVERY:
            self._report()
            if not self._sharing.holds_all(now):
                self._runs.share()  # what was undecided may be decided by now
        self._keep_tokens(lease, now)
        if not self._releasing:
            if needless := self._sharing.needless(now):
                self._give(lease, needless)
            for slot in self._sharing.surplus(now, time.time()):
                self._release_soon(slot)

    def _note_peers(self, now: float) -> None:
        if not self._sharing.is_alone:
            self._deadline.had_peers_at = now
        elif self._deadline.had_peers_at and now - self._deadline.had_peers_at > ALONE_FOR:
            self._deadline.had_peers_at = 0.0
            self._runs.end_sharing()

    def _keep_tokens(self, lease: LeaseChannel, now: float) -> None:
        """Renew tokens in time, and put new ones where they are lost: the broker delivers one to the holder of the
        slot."""
        for slot, held in self._sharing.held.items():
            if now - held.since > RENEW_EVERY:
                lease.put_token(slot, held.renew(now).encode())
        since = now - max(self._healed_at, self._sharing.leased_at or now)
        if since > LOST_FOR and not self._releasing and self._sharing.hears_others(now):
            self._healed_at = now
            for slot in self._sharing.lost:
                lease.put_token(slot, Token().encode())

    def _report(self, *, asks: bool = False) -> None:
        if self._lease is None or not self._lease.may_publish:
            return
        links = frozenset(self._sharing.links) if asks or self._has_new_links else None
        self._has_new_links = False
        self._reported_at = self._loop.time()
        self._lease.say(Report(self._id, self._name, self._sharing.shown, links, asks).encode())

    # What arrives

    def _token_arrived(self, slot: int, delivery: int, body: bytes) -> None:
        found = read_token(body)
        held = self._sharing.held.get(slot) or self._arrived.get(slot)
        if held is not None:
            self._take_another(slot, held, delivery, found)
            return
        if not self._arrived:
            self._loop.call_soon(self._take_arrived)
        self._arrived[slot] = Held(found, delivery, self._loop.time())

    def _take_another(self, slot: int, held: Held, delivery: int, found: Token) -> None:
        former = held.token
        needless = held.take(delivery, found)
        if self._lease is not None:
            self._lease.acknowledge(needless)
        if (held.token.paused, held.token.finished) != (former.paused, former.finished):
            self._runs.recall(slot)

    def _take_arrived(self) -> None:
        arrived, self._arrived = self._arrived, {}
        if self._lease is None:
            return
        if self._is_stopping:
            for slot, held in arrived.items():
                self._lease.leave(slot, held.delivery)
            return
        for slot, held in self._sharing.take(arrived, self._loop.time(), time.time()):
            self._lease.give(slot, held.delivery)
        self._report()
        self._runs.share()
        if any(held.waits_for is not None for held in self._sharing.held.values()):
            self._loop.call_later(SURELY_ENDED, self._runs.share)

    def _message_arrived(self, body: bytes) -> None:
        found = messages.decode(body)
        if found is None or found.replica == self._id:
            return
        match found:
            case Report():
                self._heard(found)
            case Leaving(replica) if self._sharing.leave(replica, self._loop.time()):
                self._runs.share()
            case Asked(_, link, action, pause):
                self._runs.commands.asked_by_another(link, action, pause)
            case Removed(_, link):
                self._runs.removed_by_another(link)

    def _heard(self, report: Report) -> None:
        was_alone = self._sharing.is_alone
        lacks_links = report.links is None and not self._sharing.others.knows_links_of(report.replica)
        if self._sharing.hear(report, self._loop.time()):
            self._runs.share()
        if report.asks or lacks_links:
            self._answer(asks=lacks_links)
        if was_alone and not self._sharing.is_alone:
            self._deadline.had_peers_at = self._loop.time()
            if self._lease is not None and self._sharing.leased_at is not None:
                self._deadline.move(self._lease)  # it may be frozen before the next tick
            log.info("links are shared with another agent of the group", agent=report.name, group=self._group)
            self._runs.begin_sharing()

    def _answer(self, *, asks: bool) -> None:
        """Report at once if that is rare, and otherwise with the next report: anybody may ask as often as they like."""
        self._has_new_links = True
        now = self._loop.time()
        if now - self._answered_at > ANSWER_EVERY:
            self._answered_at = now
            self._report(asks=asks)

    # Fair shares

    def _release_soon(self, slot: int) -> None:
        self._releasing.add(slot)
        self._tasks.once("hand over links", self._release(slot), slot=slot)

    async def _release(self, slot: int) -> None:
        """Hand over a slot. Its links end in order first, so that nothing is delivered twice."""
        held = self._sharing.held.get(slot)
        try:
            if held is None:
                return
            held.is_leaving = True
            self._runs.share()
            await self._end_of_links(slot)
            if self._lease is not None and self._sharing.held.get(slot) is held:
                self._give(self._lease, (slot,))
        finally:
            self._releasing.discard(slot)
            if held is not None and held.is_leaving and self._sharing.held.get(slot) is held:
                held.is_leaving = False  # it wasn't given up
                self._runs.share()

    async def _end_of_links(self, slot: int) -> None:
        until = self._loop.time() + RELEASED_WITHIN
        while slot in self._runs.slots_at_work():
            if self._loop.time() > until:
                log.warning("links didn't end in time, and are handed over all the same", slot=slot)
                return
            await asyncio.sleep(LOOK_EVERY)

    def _give(self, lease: LeaseChannel, slots: Iterable[int]) -> None:
        given = self._sharing.give(slots, self._loop.time())
        self._report()
        for slot, held in given:
            lease.give(slot, held.delivery)
        self._runs.share()

    async def hand_over(self) -> None:
        """Give each slot up as soon as its links have ended, and take no other; called before the agent stops."""
        self._is_stopping = True
        if self._lease is None:
            return
        for slot in range(SLOTS):
            if slot not in self._sharing.held and slot not in self._arrived:
                self._lease.leave(slot, None)
        while self._sharing.held and self._lease is not None:
            at_work = self._runs.slots_at_work()
            ended = [slot for slot in self._sharing.held if slot not in at_work]
            given = [(slot, self._sharing.held.pop(slot)) for slot in ended]
            if given:
                self._report()  # before the tokens are there, so that nobody waits for an end that has been
            for slot, held in given:
                self._lease.leave(slot, held.delivery)
            await asyncio.sleep(LOOK_EVERY)
        self._say_goodbye()

    def _say_goodbye(self) -> None:
        if self._lease is not None and self._lease.may_publish:
            self._lease.say(Leaving(self._id).encode())


def _timed(uri: AmqpUri) -> AmqpUri:
    return replace(uri, heartbeat=HEARTBEAT)
