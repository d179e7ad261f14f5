"""The link that writes to an address: publishes become transfers, and dispositions confirms.

Messages wait here, in their order, while the peer gives no credit.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from agent.amqp.wire import frames as wire
from agent.amqp.wire import methods
from agent.amqp.wire.methods import Method
from agent.amqp.wire.tables import CodecError
from agent.amqp10 import performatives
from agent.amqp10.bare import annotated, without_foreign_user
from agent.amqp10.conditions import PeerRefusal
from agent.amqp10.conversion.message import to_10
from agent.amqp10.link import DoneNumbers, LinkSession
from agent.amqp10.performatives import Performed
from agent.amqp10.terminus import Terminus

_SERIAL: Final = 1 << 32
_NOT_ACCEPTED: Final = 406
_CONTENT: Final = struct.Struct(">HHQ")
_NOTHING: Final = memoryview(b"")  # where an empty part of a message would keep all of it
_ROOM: Final = 64  # bytes of a frame that a transfer's own fields take, at most


class SenderLink:
    handles: ClassVar[Mapping[bool, int]] = {True: 0}  # by the peer's role

    def __init__(self, session: LinkSession, terminus: Terminus) -> None:
        self._session = session
        self._terminus = terminus
        self._is_attached = False
        self._awaited: Method | None = None
        self._largest = 0  # that the peer takes; 0: no limit is known
        self._credit = 0
        self._delivery_count = 0
        # The publish that is being read
        self._address = b""
        self._properties = b""
        self._missing = 0
        self._body: list[bytes] = []
        # What is read
        self._published = 0
        self._waiting: deque[bytes] = deque()
        self._waiting_size = 0
        self._is_waiting = False  # as the connection knows
        self._rest = _NOTHING  # of the message that is being written
        self._delivery_id = 0  # of the next message
        self._confirmed = DoneNumbers()  # publishes

    # What the data path sends

    def attach(self, answer: Method) -> None:
        """Attach the link, and give the data path the answer once that is done."""
        self._awaited = answer
        if self._is_attached:
            self._answer()
            return
        session = self._session
        session.send(
            performatives.ATTACH.encode(
                name=f"{session.owner.name} {session.number}",
                handle=0,
                role=False,
                snd_settle_mode=0,
                rcv_settle_mode=0,
                source=performatives.SOURCE.encode(),
                target=performatives.TARGET.encode(
                    address=self._terminus.address,
                    durable=2 if session.owner.limits.is_rabbitmq_3 else None,  # it declares queues so
                ),
                initial_delivery_count=0,
            )
        )

    def begin(self, payload: bytes) -> None:
        """Begin a publish: its method."""
        self._address = payload[6:-1]

    def content(self, kind: int, payload: bytes) -> None:
        if kind == wire.HEADER:
            _, _, self._missing = _CONTENT.unpack_from(payload)
            self._properties = payload[_CONTENT.size :]
        else:
            self._body.append(payload)
            self._missing -= len(payload)
        if self._missing <= 0:
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self._body = []
            self._publish(body)

    @property
    def has_more(self) -> bool:
        """True if messages wait to be written."""
        return bool(self._rest or self._waiting)

    def leave(self) -> None:
        """Write nothing more."""
        self._awaited = None
        self._body = []
        self._waiting.clear()
        self._rest, self._waiting_size = _NOTHING, 0
        self.write()

    # What the peer does

    def attached(self, performed: Performed) -> None:
        if performed["target"] is None or self._is_attached:
            return  # the reason follows, with its end; or it says so again
        self._is_attached = True
        self._largest = performed["max_message_size"] or 0
        if self._awaited is methods.QUEUE_DECLARE_OK:  # a look, which credit follows as a rule
            self._session.owner.later(self._answer)
        else:
            self._answer()

    def flow(self, performed: Performed) -> None:
        count = performed["delivery_count"]
        seen = self._delivery_count if count is None else count
        self._credit = max(0, (performed["link_credit"] or 0) - (self._delivery_count - seen) % _SERIAL)
        if performed["drain"]:
            self.write()
            self._delivery_count = (self._delivery_count + self._credit) % _SERIAL
            self._credit = 0
        if performed["drain"] or performed["echo"]:
            self._session.flow(handle=0, delivery_count=self._delivery_count, link_credit=self._credit)
        if self._takes_messages and self._is_attached:
            self._answer()

    def disposition(self, performed: Performed) -> None:
        """Confirm what the peer has accepted; anything else is refused, and the data path tries it again."""
        state = performed["state"]
        if not performed["role"] or (state is None and not performed["settled"]):
            return
        outcome = state.performative if isinstance(state, Performed) else None
        if outcome is performatives.RECEIVED:
            return
        first = performed["first"]
        last = first if performed["last"] is None else performed["last"]
        if state is not None and outcome is not performatives.ACCEPTED:
            self._session.rejected(_reason(state))
        if not performed["settled"]:
            self._session.send(performatives.DISPOSITION.encode(role=False, first=first, last=last, settled=True))
        self._confirm(first, last, methods.BASIC_ACK if outcome is performatives.ACCEPTED else methods.BASIC_NACK)

    def detached(self, refusal: PeerRefusal) -> None:
        self._session.refuse(refusal)

    def write(self) -> None:
        """Write what waits, as far as the peer takes it."""
        session = self._session
        while (self._rest or (self._waiting and self._credit > 0)) and session.may_transfer:
            is_first = not self._rest
            if is_first:
                message = self._waiting.popleft()
                self._rest = memoryview(message)
                self._credit -= 1
                self._delivery_count = (self._delivery_count + 1) % _SERIAL
            part = self._rest[: session.owner.largest_frame - _ROOM]
            self._rest = self._rest[len(part) :] or _NOTHING
            session.transfer(_transfer(self._delivery_id if is_first else None, more=bool(self._rest)), part)
            if is_first:
                self._delivery_id = (self._delivery_id + 1) % _SERIAL
            self._waiting_size -= len(part)
        if self._waiting_size or self._is_waiting:
            self._is_waiting = self._waiting_size > 0
            session.owner.waits_for_credit(session, self._waiting_size)

    # Inside

    def _answer(self) -> None:
        answer, self._awaited = self._awaited, None
        if answer is methods.QUEUE_DECLARE_OK:
            self._session.say(answer, consumers=int(self._takes_messages))
        elif answer is not None:
            self._session.say(answer)

    @property
    def _takes_messages(self) -> bool:
        return self._credit > 0 and self._session.may_transfer

    def _publish(self, body: bytes) -> None:
        if self._session.is_over:
            return
        try:
            message = self._message(self._properties, body)
        except CodecError as error:  # as a broker says that it doesn't accept one: which one it is is found by that
            self._session.refuse(PeerRefusal(_NOT_ACCEPTED, f"PRECONDITION_FAILED - {error}", "amqp:decode-error"))
            return
        if self._largest and len(message) > self._largest:
            text = f"message size {len(body)} is larger than configured max size {self._largest}"
            if len(body) <= self._largest:  # it is its headers, which says nothing of others
                text = f"a message of {len(message)} bytes with its headers; the address takes {self._largest}"
            text = f"PRECONDITION_FAILED - {text}"
            self._session.refuse(PeerRefusal(_NOT_ACCEPTED, text, "amqp:link:message-size-exceeded"))
            return
        self._published += 1
        self._waiting.append(message)
        self._waiting_size += len(message)
        self.write()

    def _message(self, properties: bytes, body: bytes) -> bytes:
        if not self._terminus.is_bare:
            return self._converted(properties, body)
        message = annotated(body, properties)
        if self._session.owner.limits.is_rabbitmq:
            message = without_foreign_user(message, self._session.owner.user)
        return message

    def _confirm(self, first: int, last: int, method: Method) -> None:
        """Give the data path the confirms of these delivery ids: one for all of them if nothing before them is open."""
        done = self._confirmed
        ahead = (first - done.up_to) % _SERIAL
        begin = done.up_to + 1 + (ahead if ahead < _SERIAL // 2 else ahead - _SERIAL)
        end = begin + (last - first) % _SERIAL
        if end > self._published - len(self._waiting):
            raise CodecError("an outcome of a message that wasn't sent")
        if begin <= done.up_to + 1:
            if end > done.up_to:
                self._say(method, end, multiple=True)
                done.add(done.up_to + 1, end)
            return
        for number in range(begin, end + 1):
            if number not in done:
                done.add(number, number)
                self._say(method, number, multiple=False)

    def _converted(self, properties: bytes, body: bytes) -> bytes:
        key = 1 + self._address[0]
        found = to_10(properties, body, self._address[1:key], self._address[key + 1 :])
        if found.lost:
            self._session.lost(found.lost)
        return found.message

    def _say(self, method: Method, number: int, *, multiple: bool) -> None:
        self._session.say(method, delivery_tag=number, multiple=multiple)


def _reason(state: Any) -> str:
    """Why the peer has rejected a message, in its own words; empty if it doesn't say."""
    is_rejected = isinstance(state, Performed) and state.performative is performatives.REJECTED
    error = state["error"] if is_rejected else None
    return str(error["description"] or error["condition"]) if isinstance(error, Performed) else ""


def _transfer(delivery_id: int | None, *, more: bool) -> bytes:
    """A transfer by handle 0, without its payload; None goes on with the message before. The tag is the id."""
    if delivery_id is None:
        return b"\x00\x53\x14\xc0\x07\x06\x43\x40\x40\x40\x40" + (b"\x41" if more else b"\x42")
    number = delivery_id.to_bytes(4)
    head = b"\x00\x53\x14\xc0\x10\x06\x43\x70" if more else b"\x00\x53\x14\xc0\x0f\x05\x43\x70"
    return b"".join((head, number, b"\xa0\x04", number, b"\x43\x42", b"\x41" if more else b""))
