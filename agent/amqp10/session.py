"""One channel of the data path as a session of AMQP 1.0, with one link: to read from the connection's address, or to
write to it."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

from agent.amqp.wire import frames as wire
from agent.amqp.wire import methods
from agent.amqp.wire.methods import Call, Method
from agent.amqp.wire.tables import CodecError
from agent.amqp10 import performatives
from agent.amqp10.conditions import PeerRefusal, refusal_of
from agent.amqp10.link import SessionOwner
from agent.amqp10.management import ManagementLinks
from agent.amqp10.performatives import Performed
from agent.amqp10.receiving import ReceiverLink
from agent.amqp10.sending import SenderLink
from agent.amqp10.terminus import Terminus

_WINDOW: Final = 4_096  # transfers that the peer may send before it hears how many more
_SERIAL: Final = 1 << 32
_HANDLE_MAX: Final = 255  # that the peer may give a link
_IDS: Final = struct.Struct(">I")
_PUBLISH: Final = 60 << 16 | 40
_NOT_IMPLEMENTED: Final = 540


class TranslatedSession:
    """`number` is that of the channel; the session has the one before, since AMQP 1.0 counts from 0."""

    def __init__(self, number: int, terminus: Terminus, owner: SessionOwner) -> None:
        self.number = number
        self.owner = owner
        self._terminus = terminus
        self._link: ReceiverLink | SenderLink | ManagementLinks = (ReceiverLink if terminus.is_source else SenderLink)(
            self, terminus
        )
        self._handles: dict[int, int] = {}  # the peer's numbers of its links, and ours
        self.is_over = False  # nothing more comes or goes but its end
        self._is_ending = False
        self._is_refused = False  # as the data path knows
        self._is_awaited = False  # its end
        self._closes_later = False  # once all is written
        self._next_incoming = 0
        self._window = _WINDOW  # transfers that the peer may still send
        self._next_outgoing = 0
        self._has_begun = False  # as the peer says
        self._peer_window = 0  # transfers that it still takes

    # What the data path sends

    def method(self, payload: bytes) -> None:
        """Do what a method of the channel asks for."""
        (ids,) = _IDS.unpack_from(payload)
        if ids == _PUBLISH:
            self._sender.begin(payload)
            return
        call = methods.decode(payload)
        match call.method:
            case (
                methods.BASIC_ACK
                | methods.BASIC_NACK
                | methods.BASIC_QOS
                | methods.BASIC_CONSUME
                | methods.BASIC_CANCEL
            ):
                self._receive(call)
            case methods.CHANNEL_OPEN:
                self.send(self._begin())
            case methods.CHANNEL_CLOSE if self._terminus.settles_early and self._link.has_more and not self._is_refused:
                self._closes_later = True  # what waits is settled at its source
            case methods.CHANNEL_CLOSE:
                self._is_awaited = not self._is_refused
                self._end()
            case methods.CHANNEL_CLOSE_OK:
                self._end()
            case methods.QUEUE_DECLARE:
                self._declare(is_passive=call["passive"])
            case methods.CONFIRM_SELECT:
                self._sender.attach(methods.CONFIRM_SELECT_OK)
            case other:
                self.refuse(PeerRefusal(_NOT_IMPLEMENTED, f"NOT_IMPLEMENTED - {other.name} by AMQP 1.0", ""))

    def _declare(self, *, is_passive: bool) -> None:
        """Look at the address, or declare its queue. Where queues aren't shown, and where it is written to, looking is
        to attach a link: that shows if it may be used."""
        terminus, link = self._terminus, self._link
        can_ask = terminus.is_queue and self.owner.limits.shows_queues
        if isinstance(link, ManagementLinks) or (can_ask and (terminus.is_source or not is_passive)):
            if not isinstance(link, ManagementLinks):
                link = self._link = ManagementLinks(self, terminus.address)
            (link.show if is_passive else link.declare)()
        elif is_passive:
            link.attach(methods.QUEUE_DECLARE_OK)
        else:
            self.refuse(
                PeerRefusal(_NOT_IMPLEMENTED, "NOT_IMPLEMENTED - the broker declares no queues by AMQP 1.0", "")
            )

    def _receive(self, call: Call) -> None:
        receiver = self._receiver
        match call.method:
            case methods.BASIC_QOS:
                receiver.limit(call["prefetch_count"])
            case methods.BASIC_CONSUME:
                receiver.consume(call["consumer_tag"], no_ack=call["no_ack"])
            case methods.BASIC_CANCEL:
                receiver.cancel(call["consumer_tag"])
            case method:
                is_accepted = method is methods.BASIC_ACK
                receiver.settle(call["delivery_tag"], multiple=call["multiple"], is_accepted=is_accepted)

    def content(self, kind: int, payload: bytes) -> None:
        """Take a header or a body of a publish; what comes after a refusal isn't published, as by 0-9-1."""
        if not self._is_refused:
            self._sender.content(kind, payload)

    def leave(self) -> None:
        """Let go of all messages: nothing more is read or written."""
        self.is_over = self._is_ending = True
        self._link.leave()

    # What the peer sends

    def performed(self, performed: Performed, payload: memoryview) -> None:
        kind = performed.performative
        if self.is_over and kind is not performatives.BEGIN and kind is not performatives.END:
            return
        if not self._is_of_a_link(performed):
            raise CodecError("a link that wasn't asked for")
        match kind:
            case performatives.TRANSFER:
                self._transferred(performed, payload)
            case performatives.DISPOSITION:
                self._link.disposition(performed)
            case performatives.FLOW:
                self._flow(performed)
            case performatives.ATTACH:
                self._link.attached(performed)
            case performatives.DETACH:
                self._detached(performed)
            case performatives.BEGIN:
                self._next_incoming = performed["next_outgoing_id"]
                self._has_begun, self._peer_window = True, performed["incoming_window"]
                self.say(methods.CHANNEL_OPEN_OK)
            case performatives.END:
                self._ended(performed)
            case other:
                raise CodecError(f"{other.name} in a session")

    def _is_of_a_link(self, performed: Performed) -> bool:
        """True if it is of a link, or of none. Each side numbers links by itself; a peer keeps its number for the
        session."""
        theirs, kind = performed.values.get("handle"), performed.performative
        if kind is performatives.DETACH and not self._handles and len(self._link.handles) == 1:
            return True  # a peer may refuse the only link without an attach of its own
        if kind is not performatives.ATTACH:
            return theirs is None or theirs in self._handles
        ours = self._link.handles.get(performed["role"])
        if ours is None or performed["handle"] > _HANDLE_MAX:
            return False
        is_same = self._handles.setdefault(performed["handle"], ours) == ours
        return is_same and [*self._handles.values()].count(ours) == 1

    def quickly(self, data: bytes, begin: int, after: int) -> bool:
        """Take an ordinary transfer; return False if it isn't one."""
        link = self._link
        if self.is_over or self._window <= _WINDOW // 2 or not isinstance(link, ReceiverLink):
            return False
        if not link.quickly(data, begin, after):
            return False
        self._next_incoming = (self._next_incoming + 1) % _SERIAL
        self._window -= 1
        return True

    def _transferred(self, performed: Performed, payload: memoryview) -> None:
        self._next_incoming = (self._next_incoming + 1) % _SERIAL
        self._window -= 1
        if self._window < 0:
            raise CodecError("more transfers than the session's window allows")
        if isinstance(self._link, SenderLink):
            raise CodecError("a message by a link that is written to")
        self._link.transferred(performed, payload)
        if self._window <= _WINDOW // 2:
            self.flow()

    def _flow(self, performed: Performed) -> None:
        seen = performed["next_incoming_id"]
        seen = 0 if seen is None else seen
        self._peer_window = performed["incoming_window"] - (self._next_outgoing - seen) % _SERIAL
        if performed["handle"] is not None:
            self._link.flow(performed)
        elif performed["echo"]:
            self.flow()
        if isinstance(self._link, SenderLink):
            self.owner.credited()
        self.write()

    def write(self) -> None:
        """Write what waits, now that the peer or the socket may take more."""
        if isinstance(self._link, SenderLink):
            self._link.write()
        if self._closes_later and not self._link.has_more:
            self._closes_later, self._is_awaited = False, True
            self._end()

    def _detached(self, performed: Performed) -> None:
        handle = self._handles.get(performed["handle"], 0)  # 0 is the only link's
        self.send(performatives.DETACH.encode(handle=handle, closed=performed["closed"]))
        self._link.detached(refusal_of(performed["error"]))

    def _ended(self, performed: Performed) -> None:
        if self._is_awaited:
            self.say(methods.CHANNEL_CLOSE_OK)
        self.refuse(refusal_of(performed["error"]))
        self._end()
        self.owner.forget(self)

    # What its link uses

    def send(self, performative: bytes) -> None:
        self.owner.send(performatives.frame(self.number - 1, performative))

    def say(self, method: Method, **values: Any) -> None:
        """Say a method to the data path."""
        self.owner.feed(wire.frame(wire.METHOD, self.number, method.encode(**values)))

    def refuse(self, refusal: PeerRefusal) -> None:
        """Close the channel for a reason."""
        if not self.is_over:
            self.is_over = self._is_refused = True
            self._link.leave()
            self.say(methods.CHANNEL_CLOSE, code=refusal.code, text=self.owner.shown(refusal.text))

    def lost(self, reasons: Iterable[str]) -> None:
        """Count what a message loses by being converted."""
        self.owner.lost(self.number, reasons)

    def rejected(self, text: str) -> None:
        self.owner.rejected(self.number, text)

    def unapplied(self, names: tuple[str, ...]) -> None:
        self.owner.unapplied(self.number, names)

    @property
    def may_transfer(self) -> bool:
        return self._peer_window > 0 and not self.owner.is_full

    @property
    def is_shut(self) -> bool:
        return self._has_begun and self._peer_window <= 0

    def transfer(self, performative: bytes, payload: memoryview) -> None:
        self._next_outgoing = (self._next_outgoing + 1) % _SERIAL
        self._peer_window -= 1
        size = performatives.OVERHEAD + len(performative) + len(payload)
        self.owner.send(performatives.PREFIX.pack(size, 2, performatives.AMQP, self.number - 1) + performative)
        self.owner.send(payload)

    def flow(self, **values: Any) -> None:
        """Tell the peer the state of the session, and with `values` that of the link."""
        self._window = _WINDOW
        self.send(
            performatives.FLOW.encode(
                next_incoming_id=self._next_incoming,
                incoming_window=_WINDOW,
                next_outgoing_id=self._next_outgoing,
                outgoing_window=_SERIAL // 2,
                **values,
            )
        )

    # Inside

    @property
    def _receiver(self) -> ReceiverLink:
        if isinstance(self._link, ReceiverLink):
            return self._link
        raise CodecError("an address to write to isn't read from")

    @property
    def _sender(self) -> SenderLink:
        if isinstance(self._link, SenderLink):
            return self._link
        raise CodecError("an address to read from isn't written to")

    def _begin(self) -> bytes:
        return performatives.BEGIN.encode(
            next_outgoing_id=0, incoming_window=_WINDOW, outgoing_window=_SERIAL // 2, handle_max=_HANDLE_MAX
        )

    def _end(self) -> None:
        """End the session: what isn't settled goes back to its source."""
        if not self._is_ending:
            self.leave()
            self.send(performatives.END.encode())
