"""The downstream channel of a link: tracks what is published on it, what the broker answers, and what is settled
upstream.

Why: docs/decisions/0015-tags-in-order.md
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from agent.amqp.data.held import NO_WAYS, HeldBuffers, Ways
from agent.amqp.data.refused import Later, Refused, Unpublishable
from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import Channel
from agent.amqp.wire.connection import WireConnection
from agent.amqp.wire.frames import U32
from agent.amqp.wire.tables import CodecError
from agent.core.links.confirms import Confirms
from agent.core.links.lag import Histogram
from agent.core.links.refusals import Refusals
from agent.core.model import AckMode
from agent.core.rules.quarantine import QuarantineReason

_ACK: Final = 60 << 16 | 80
_NACK: Final = 60 << 16 | 120
_RETURN: Final = 60 << 16 | 50
_TAG_AND_FLAG: Final = struct.Struct(">QB")
_SETTLE_FRAME: Final = struct.Struct(">BHIHHQBB")
_SETTLE_SIZE: Final = 13
_REQUEUE: Final = 2
MOST_UNSETTLED: Final = 4 * 65_535  # consumers follow one another, and none has a larger prefetch than that
TRANSFER_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 30.0)
BINDING_SYNC_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)


@dataclass(slots=True)
class Counts:
    """The totals of one link since it was created; the status board reads them."""

    forwarded: int = 0
    taken: int = 0  # read from the source, probes and what came beyond a limit excepted
    given_back: int = 0  # to the source, on purpose or because the link ended; they come again
    bytes: int = 0
    redelivered: int = 0
    returned: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    refused: int = 0  # by the downstream, each time
    unpublishable: dict[str, int] = field(default_factory=dict)  # can't be published there at all, each time
    quarantined: dict[str, int] = field(default_factory=dict)
    converted_with_loss: dict[str, int] = field(default_factory=dict)  # by what the other protocol can't say
    limited_seconds: float = 0.0  # in which its rate limit kept it from reading
    transfer: Histogram = field(default_factory=lambda: Histogram(TRANSFER_BOUNDS))  # seconds from read to confirm
    binding_sync: Histogram = field(default_factory=lambda: Histogram(BINDING_SYNC_BOUNDS))  # from a change to its bind


def _never(_: float, __: Callable[[], None]) -> None:
    """In place of a timer."""


class PublishTracker:
    """Settles upstream what the downstream confirms, in one frame for all of it.

    What the downstream refuses is published again, see `Refused`. What it can never accept goes back upstream later. It
    isn't dropped, it doesn't come again immediately and forever, and what follows it flows on. But it keeps coming
    until something is changed.
    """

    __slots__ = (  # a dict of so many would take 1.5 KB a link
        "_ack_mode", "_batches", "_channel", "_clock", "_counts", "_entering_quarantine", "_forwarded_before",
        "_heeds_confirms", "_instead_of_return", "_is_abandoned", "_measured", "_moved", "_no_quarantine", "_probes",
        "_probes_in_flight", "_settle", "_unpublishable", "_upstream", "_withholds", "confirms", "held", "largest",
        "number", "on_held", "on_returned", "outlet", "quarantined", "refused", "settled_up_to", "upstream_number",
    )  # fmt: skip

    def __init__(
        self,
        channel: Channel,
        outlet: WireConnection,
        counts: Counts,
        *,
        ack_mode: AckMode,
        settle: Callable[[bytes], None],
        held: HeldBuffers,
        largest: int | None = None,
        returns_are_counted: bool = False,
        give_up_after: float | None = None,
        instead_of_return: Callable[[], None] | None = None,
        later: Later | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`outlet` is the connection that publishes go to, `largest` the largest body that the broker is known to
        accept; it shows that only when it refuses one.

        `held` gets what is written, until it is confirmed; only with `on-confirm`. What is refused is published again
        from there; for more than `give_up_after` seconds only if no other message gets through.

        With `returns_are_counted`, each message that is given back is one step nearer to being dropped by its source.
        Where a source takes nothing back, `instead_of_return` is called when refused messages would have to go back;
        those that can't be published are held for good.
        """
        loop = asyncio.get_running_loop()
        later = later or loop.call_later
        self.outlet = outlet
        self.number = channel.number
        self.confirms = Confirms()
        self.upstream_number = 0
        self.on_returned: Callable[[], None] | None = None  # before what is returned counts as confirmed
        self.on_held: Callable[[int], None] | None = None  # with how many didn't get through, and go back later
        self.settled_up_to = 0  # the delivery up to which each is settled at the source, or nothing is left to settle
        self.held = held if ack_mode is AckMode.ON_CONFIRM else None
        self.largest = largest
        self._channel = channel
        self._upstream: Channel | None = None
        self._counts = counts
        self._forwarded_before = counts.forwarded
        self._ack_mode = ack_mode
        self._settle = settle
        self._clock = clock or loop.time
        self.refused = Refused(
            held,
            Refusals(self.confirms, give_up_after=give_up_after, returns_are_counted=returns_are_counted),
            publish=self._publish_again,
            may_publish=lambda: self.is_open and not self._channel.is_midway,
            give_back=self._give_back_refused,
            later=later,
            clock=self._clock,
        )
        self._instead_of_return = instead_of_return
        self._unpublishable = Unpublishable(
            _never if instead_of_return else later,
            self._give_back,
            self._clock,
            returns_are_counted=returns_are_counted,
        )
        self._batches: list[tuple[int, float]] = []  # last publish number and time of a read's publishes
        self._measured = 0  # the last publish number of the last batch that was settled
        self.quarantined = 0
        self._entering_quarantine: dict[int, str] = {}  # to the quarantine: by tag the reason
        self._no_quarantine = ""  # why the last one isn't there
        self._withholds = False
        self._moved: asyncio.Future[None] | None = None  # done once anything may be settled that is waited for
        self._probes: set[int] = set()  # that are written with the next messages, by tag
        self._probes_in_flight: set[int] = set()  # by publish number
        self._heeds_confirms = ack_mode is AckMode.ON_CONFIRM
        self._is_abandoned = False

    def fed_by(self, upstream: Channel) -> None:
        """Set the channel that deliveries come from, and are settled on."""
        self._upstream = upstream
        self.upstream_number = upstream.number

    @property
    def is_open(self) -> bool:
        return self._channel.is_usable

    @property
    def has_confirmed(self) -> bool:
        """True if the broker has confirmed anything on this channel."""
        return self._ack_mode is AckMode.ON_CONFIRM and self._counts.forwarded > self._forwarded_before

    @property
    def oldest_unconfirmed(self) -> float | None:
        """The time when the message that has waited longest for its confirm was read; None if none waits."""
        return self._batches[0][1] if self._batches else None

    def streams(self, *, midway: bool) -> None:
        """Record if the broker has the beginning of a message, with what is written next, and waits for the rest."""
        self._open()
        self._channel.is_midway = midway

    def took(self, count: int) -> None:
        """Count deliveries that were read, whatever becomes of them."""
        self._counts.taken += count

    @property
    def unsettled(self) -> int:
        """The number of deliveries that were taken, and neither forwarded, dropped, put into the quarantine, nor given
        back."""
        if self._is_abandoned:
            return 0
        if self._ack_mode is AckMode.NO_ACK:  # nothing is held, since nothing can be given back
            return len(self._entering_quarantine)
        probes = sum(self.confirms.is_in_flight(number) for number in self._probes_in_flight)
        return self.confirms.in_flight + self.confirms.held - probes

    def abandon(self) -> None:
        """Count what isn't settled as given back: both channels have ended, and the source's broker requeues it."""
        if self._ack_mode is not AckMode.NO_ACK:
            self._counts.given_back += self.unsettled
        self._is_abandoned, self._heeds_confirms = True, False  # what is confirmed later counts as given back already

    def let_go(self) -> None:
        """Neither publish nor give back from now on what was refused."""
        self.refused.let_go()
        self._unpublishable.let_go()
        self.on_returned = self.on_held = self._instead_of_return = None

    def write(self, data: bytes) -> None:
        """Write frames of publishes, and hold them."""
        self._open()
        self.outlet.write_soon(data)
        if self.held is not None:
            self.held.written(data)

    def _open(self) -> None:
        if self._channel.is_reserved:
            self._channel.open_for_confirms()

    def published(self, tags: list[int], size: int, *, came_again: list[int], ways: Ways, rewritten: int) -> None:
        """Record that these deliveries were written, whole and in this order; `came_again` are those that were
        redelivered."""
        counts = self._counts
        counts.bytes += size
        counts.redelivered += len(came_again)
        if self._ack_mode is AckMode.ON_CONFIRM:
            last = self.confirms.published(tags)
            if self._probes:
                first = last - len(tags) + 1
                self._probes_in_flight.update(first + at for at, tag in enumerate(tags) if tag in self._probes)
                self._probes.clear()
            self._batches.append((last, self._clock()))
            self._limit_unsettled()
            if self.held is not None:
                self.held.published(last, ways, rewritten=rewritten)
            self.refused.published(last - len(tags) + 1, tags, ways.prepared, came_again)
            return
        counts.forwarded += len(tags) - len(self._probes)
        self._probes.clear()
        self._done(tags)
        self.acknowledge()

    def _publish_again(self, data: bytes, last: int) -> None:
        """Write refused messages once more, up to this publish number. `Refused` holds them already."""
        self.outlet.write_soon(data)
        self._batches.append((last, self._clock()))
        if self.held is not None:
            self.held.published(last, NO_WAYS)

    def passes_probe(self, tag: int) -> None:
        """Note that a delivery which is written with the next messages is a probe: it isn't counted as forwarded."""
        self._probes.add(tag)

    def probe_dropped(self, tag: int) -> None:
        self._done([tag])

    def dropped(self, tag: int, reason: str) -> None:
        self._counts.dropped[reason] = self._counts.dropped.get(reason, 0) + 1
        self._done([tag])

    def refuse(self, tag: int, reason: str, size: int) -> None:
        """Hold a delivery that the downstream could never accept, to return it later. With `no-ack` nothing can be
        returned: it is lost."""
        self._counts.unpublishable[reason] = self._counts.unpublishable.get(reason, 0) + 1
        if self._ack_mode is not AckMode.NO_ACK:
            self.confirms.hold(tag)
            self._unpublishable.add(tag, reason, size)
            self._limit_unsettled()
            self._report_held(1)

    def quarantine_started(self, tag: int, reason: str) -> None:
        """Hold a delivery that is on its way to the quarantine."""
        if self._ack_mode is not AckMode.NO_ACK:
            self.confirms.hold(tag)
            self._limit_unsettled()
        self._entering_quarantine[tag] = reason

    @property
    def can_settle(self) -> bool:
        """True if deliveries can still be settled at their source, or need not be (`no-ack`)."""
        return self._settles or self._ack_mode is AckMode.NO_ACK

    def quarantine_done(self, tag: int) -> None:
        """Settle a delivery: it is in the quarantine."""
        reason = self._entering_quarantine.pop(tag)
        if self.refused.owns(tag):
            self.refused.quarantine_done(tag)
        self._counts.quarantined[reason] = self._counts.quarantined.get(reason, 0) + 1
        self.quarantined += 1
        self._no_quarantine = ""
        if self._ack_mode is not AckMode.NO_ACK:
            self.confirms.disposed(tag)
        self.acknowledge()

    def quarantine_failed(self, tag: int, size: int, why: str) -> None:
        """Keep a delivery that can't be put into the quarantine: it is published again, or goes back to its source
        later."""
        self._no_quarantine = why
        reason = self._entering_quarantine.pop(tag)
        if self.refused.owns(tag):
            self.refused.quarantine_failed(tag)
        else:
            self.refuse(tag, reason, size)
        self.acknowledge()

    def _limit_unsettled(self) -> None:
        """Raise CodecError if the broker has sent more than any prefetch allows: what is known of each delivery takes
        memory."""
        if self.confirms.in_flight + self.confirms.held > MOST_UNSETTLED:
            raise CodecError("more deliveries than the prefetch allows")

    @property
    def held_unpublishable(self) -> int:
        """The number of deliveries that are held because they can't be published, or because they were refused."""
        return self._unpublishable.count + self.refused.waiting

    @property
    def trouble(self) -> str:
        """The text for operators about messages that don't get through; empty if all do."""
        limits: dict[str, int] = {
            QuarantineReason.HEADERS_TOO_LARGE: self.outlet.frame_max,
            QuarantineReason.TOO_LARGE: self.largest or 0,
        }
        troubles = [self._lost() if self._ack_mode is AckMode.NO_ACK else self._unpublishable.describe(limits)]
        refused = self.refused.count
        if self.lacks_quarantine:
            troubles.append(
                f"what can't be published downstream can't be put into the quarantine: {self._no_quarantine}"
            )
        if refused:
            oldest = f", the oldest {where}" if (where := self.refused.where) else ""
            why = f"the last one: {said}" if (said := self._channel.rejection) else "is a queue there full?"
            troubles.append(f"{refused} refused by the destination ({why}) and tried again{oldest}")
        return "; ".join(filter(None, troubles))

    @property
    def lacks_quarantine(self) -> bool:
        """True if messages wait that belong in a quarantine which can't be used."""
        return bool(
            self._no_quarantine and (self._unpublishable.count or self.refused.count or self._entering_quarantine)
        )

    def _lost(self) -> str:
        """The text about messages that were lost because nothing is acknowledged; empty if none were."""
        lost = sum(self._counts.unpublishable.values())
        return f"{lost} lost, since they can't be published downstream and ack-mode is no-ack" if lost else ""

    def take(self, buffer: bytearray, at: int, end: int) -> int:
        """Consume whole frames of the downstream channel: confirms quickly, everything else by the channel."""
        prefix = frames.PREFIX.unpack_from
        confirmed = 0
        while end - at >= frames.OVERHEAD:
            kind, of_channel, size = prefix(buffer, at)
            after = at + frames.OVERHEAD + size
            if of_channel != self.number or after > end:
                break
            if buffer[after - 1] != frames.END:
                raise CodecError("a frame doesn't end where it says")
            ids = U32.unpack_from(buffer, at + 7)[0] if kind == frames.METHOD and size >= 4 else 0
            if ids in {_ACK, _NACK} and size == _SETTLE_SIZE:
                tag, flags = _TAG_AND_FLAG.unpack_from(buffer, at + 11)
                if not self._heeds_confirms:
                    pass  # nothing waits for it
                elif ids == _ACK:
                    confirmed += self.confirms.confirmed(tag, multiple=bool(flags & 1))
                else:
                    self._refuse(tag, multiple=bool(flags & 1))
            elif ids == _RETURN or kind != frames.METHOD:
                self._returned(kind, bytes(buffer[at + 7 : after - 1]))
            else:
                self._channel.received(kind, bytes(buffer[at + 7 : after - 1]))
            at = after
        self._confirmed(confirmed)
        return at

    def _returned(self, kind: int, payload: bytes) -> None:  # noqa: ARG002 - what was returned is of no use here
        """Count a message that came back since no queue takes it; its header and body follow."""
        if kind == frames.METHOD:
            self._counts.returned += 1
            if self.on_returned is not None:
                self.on_returned()

    def _confirmed(self, count: int) -> None:
        """Count the publishes that one read confirmed, if any, and acknowledge them upstream."""
        if self._probes_in_flight:
            arrived = {number for number in self._probes_in_flight if not self.confirms.is_in_flight(number)}
            self._probes_in_flight -= arrived
            count -= len(arrived)
        self._counts.forwarded += count
        self.refused.confirmed(count)
        self._measure()
        self.acknowledge()

    async def settled(self) -> None:
        """Wait until nothing is in flight."""
        await self._until(lambda: not self.confirms.in_flight and not self._entering_quarantine)

    async def all_settled(self) -> None:
        """Wait until nothing is in flight, and nothing waits since it was refused."""
        await self._until(
            lambda: not (self.confirms.in_flight or self._entering_quarantine or self.refused.has_waiting)
        )

    async def quarantine_settled(self) -> None:
        """Wait until nothing is on its way to the quarantine."""
        await self._until(lambda: not self._entering_quarantine)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            if self._moved is None or self._moved.done():
                self._moved = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._moved)

    def surplus(self, tags: Iterable[int]) -> None:
        """Return what came beyond a limit, at once."""
        if self._settles:
            self._return(tags)
            self.acknowledge()

    def withhold(self) -> None:
        """Acknowledge nothing upstream until `go_on`."""
        self._withholds = True

    def go_on(self) -> None:
        self._withholds = False
        self.acknowledge()

    def cut_off(self) -> None:
        """Settle nothing upstream from now on, so that what isn't settled yet goes back when its channel closes."""
        self._upstream = None

    def acknowledge(self) -> None:
        """Acknowledge upstream what is settled, in one frame for all of it unless something in between is held."""
        if self._moved is not None and not self._moved.done():
            self._moved.set_result(None)
        if self._withholds or not self._settles:
            return
        self.settled_up_to = self.confirms.settled
        singly, tag = self.confirms.acknowledge()
        for each in singly:
            self._say(methods.BASIC_ACK, each, 0)
        if tag is not None:
            self._say(methods.BASIC_ACK, tag, 1)

    @property
    def _settles(self) -> bool:
        """True if deliveries can be settled upstream and need to be; a method on a closed channel would cost its whole
        connection."""
        wanted = self._ack_mode is not AckMode.NO_ACK
        return wanted and self._upstream is not None and self._upstream.is_usable

    def _done(self, tags: list[int]) -> None:
        if self._ack_mode is not AckMode.NO_ACK:
            for tag in tags:
                self.confirms.dropped(tag)

    def _refuse(self, number: int, *, multiple: bool) -> None:
        named = self.confirms.refused(number, multiple=multiple)
        for probe in self._probes_in_flight & named.keys():  # another one follows soon
            self._probes_in_flight.discard(probe)
            self.confirms.disposed(named.pop(probe))
        self._counts.refused += len(named)
        for each, tag in named.items():
            self.refused.take(each, tag)

    def _report_held(self, count: int) -> None:
        if self.on_held is not None:
            self.on_held(count)

    def _give_back(self, tags: list[int]) -> None:
        if not self._settles:
            return
        if self._instead_of_return is not None:
            self._instead_of_return()
            return
        self._counts.given_back += len(tags)
        self._return(tags)
        self.acknowledge()

    def _give_back_refused(self, tags: list[int]) -> None:
        """Give back refused deliveries; they come again, or others in their place."""
        if self._settles:
            self._report_held(len(tags))
        self._give_back(tags)

    def _return(self, tags: Iterable[int]) -> None:
        for tag in tags:
            self.confirms.returned(tag)
            self._say(methods.BASIC_NACK, tag, _REQUEUE)

    def _say(self, method: methods.Method, tag: int, flags: int) -> None:
        number = self.upstream_number
        self._settle(_SETTLE_FRAME.pack(frames.METHOD, number, _SETTLE_SIZE, *method.ids, tag, flags, frames.END))

    def _measure(self) -> None:
        """Record the transfer time of reads that are settled: all messages of a read take as long as the last of
        them."""
        oldest = self.confirms.oldest_number
        settled = 0
        for last, since in self._batches:
            if last >= oldest:
                break
            self._counts.transfer.observe(self._clock() - since, last - self._measured)
            self._measured = last
            settled += 1
        del self._batches[:settled]
        if self.held is not None:
            self.held.settled(oldest)
