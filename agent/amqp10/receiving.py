"""The link that reads from an address: transfers become deliveries, and acknowledgements dispositions.

A prefetch becomes credit: as much as is missing between it and what is delivered and not settled.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import ClassVar, Final

from agent.amqp.wire import frames as wire
from agent.amqp.wire import methods
from agent.amqp.wire.methods import Method
from agent.amqp.wire.tables import CodecError, short_string
from agent.amqp10 import performatives
from agent.amqp10.bare import NO_ADDRESS, BareMessages, Taken
from agent.amqp10.conditions import PeerRefusal
from agent.amqp10.conversion.message import to_091
from agent.amqp10.link import DoneNumbers, LinkSession
from agent.amqp10.performatives import Performed
from agent.amqp10.sections import find_sections
from agent.amqp10.terminus import Terminus
from agent.amqp10.types import NULL, Value
from agent.core.fields import Field, Table

LARGEST_MESSAGE: Final = (
    128 * 1024 * 1024
)  # that is taken: it has to be here before it goes on, as its size isn't known
WIRE_FRAME: Final = 128 * 1024  # the frames that bodies are cut to for the data path
MOST_ABORTED: Final = 100  # between others that aren't settled
_UNLIMITED_CREDIT: Final = 1_000  # where nothing is acknowledged
_SERIAL: Final = 1 << 32
_SETTLED: Final = 1  # snd-settle-mode
_FILTER_TYPES: Final = {"S": "string", "l": "long", "t": "boolean", "d": "double", "V": "null"}
_NAMES: Final = {"x-stream-offset": "rabbitmq:stream-offset-spec"}  # of the filters that have another one
_KEYS: Final = {"amqp:properties-filter": "symbol"}  # of the filters that aren't keyed by text
_DELIVER: Final = struct.pack(">HH", *methods.BASIC_DELIVER.ids)
_UINT_0: Final = 0x43
_TAG_AND_FLAG: Final = struct.Struct(">QB")
_HEADER: Final = struct.Struct(">BBHIHHQ")  # behind the end of the frame before
_PROPERTIES_AT: Final = 12
_WHOLE: Final = frozenset({b"\x43\x42\x42", b"\x43\x41\x42", b"\x43\x42", b"\x43\x41"})
"""The usual ends of a transfer's fields behind the tag: message format 0, settled or not, and not more to come."""
_UNREADABLE: Final = b"\x20\x00\xff\xff\xff\xff"
"""Properties with a table that is cut off: the data path refuses this message, and no other."""
_BODY: Final = WIRE_FRAME - wire.OVERHEAD
_SENDS_SETTLED: Final = PeerRefusal(
    540,
    "NOT_IMPLEMENTED - the source sends only settled messages, which are lost if the link fails: set ack-mode: no-ack "
    "to take them so",
    "",
)


def filter_set(arguments: Table) -> dict[str, Value] | None:
    """The arguments of a consumer as filters of a source, each described by its name."""
    found = {_NAMES.get(name, name): field for name, field in arguments}
    return {
        name: Value("described", (Value("symbol", name), _filter_value(field, key=_KEYS.get(name, "string"))))
        for name, field in found.items()
    } or None


def _filter_value(field: Field, *, key: str = "string") -> Value:
    """The value of what JSON has, and of a time, in milliseconds; `key` is the type of a mapping's keys."""
    match field.tag:
        case "A":
            return Value("list", tuple(map(_filter_value, field.value)))
        case "F":
            return Value("map", tuple((Value(key, name), _filter_value(each)) for name, each in field.value))
        case "T":
            return Value("timestamp", 1000 * field.value)
    return Value(_FILTER_TYPES[field.tag], field.value)


def _descriptor(value: Value) -> str:
    """The name that describes it, empty if none does."""
    descriptor: Value = value.value[0] if value.type == "described" else NULL
    return str(descriptor.value) if descriptor.type == "symbol" else ""


class ReceiverLink:
    handles: ClassVar[Mapping[bool, int]] = {False: 0}  # by the peer's role
    has_more: Final = False

    def __init__(self, session: LinkSession, terminus: Terminus) -> None:
        self._session = session
        self._terminus = terminus
        self._bare = BareMessages()
        self._is_attached = False
        self._no_ack = False
        self._awaited: Method | None = None  # the answer that the data path waits for
        self._tag = ""  # of the consumer; empty if there is none
        self._cancelled: deque[str] = deque()  # the tags of those that are being ended
        self._drains = False  # so that it gives back what credit it has left
        self._prefix = b""
        self._prefetch = 0
        self._credit = 0  # that the peer has left
        self._delivery_count = 0  # the peer's
        self._quick: int | None = None  # the code of the handle in transfers that are taken quickly
        self._last = 0  # tag of a delivery
        self._settled = DoneNumbers()
        self._offset = 0  # from a delivery's tag to its id
        self._runs: list[tuple[int, int]] = []  # the last tag with a former offset, for deliveries that aren't settled
        self._unread: int | None = None  # id of the last message whose settling the peer may not have read
        self._asked: deque[int] = deque()  # the same for each limit that isn't answered
        self._partial: bytearray | None = None  # the message that comes in several transfers
        self._partial_id = 0
        self._partial_format = 0

    @property
    def _unsettled(self) -> int:
        return 0 if self._no_ack else self._last - self._settled.count

    # What the data path asks

    def attach(self, answer: Method, *, no_ack: bool = False) -> None:
        """Attach the link, and give the data path the answer once that is done."""
        self._awaited = answer
        if self._is_attached:
            self._answer()
            return
        self._no_ack = no_ack
        terminus, session = self._terminus, self._session
        name = terminus.link_name if answer is methods.BASIC_CONSUME_OK else None  # not of a look beside that link
        session.send(
            performatives.ATTACH.encode(
                name=name or f"{session.owner.name} {session.number}",
                handle=0,
                role=True,
                snd_settle_mode=int(no_ack),
                rcv_settle_mode=0,
                source=performatives.SOURCE.encode(
                    address=terminus.address,
                    durable=2 if session.owner.limits.is_rabbitmq_3 else None,  # it declares queues so
                    filter=filter_set(terminus.filters),
                ),
                target=performatives.TARGET.encode(),
                max_message_size=LARGEST_MESSAGE,
            )
        )

    def limit(self, prefetch: int) -> None:
        """Set the prefetch. If messages are counted, the answer shows that the peer has read what was settled before,
        as by 0-9-1."""
        self._prefetch = prefetch
        if self._unread is None:
            self._session.say(methods.BASIC_QOS_OK)
        else:
            self._asked.append(self._unread)

    def consume(self, tag: str, *, no_ack: bool) -> None:
        self._tag = tag
        self._prefix = _DELIVER + short_string(tag)
        self.attach(methods.BASIC_CONSUME_OK, no_ack=no_ack)

    def cancel(self, tag: str) -> None:
        self._cancelled.append(tag)
        self._tag = ""
        if not self._credit:
            self._drained()
            return
        if len(self._cancelled) > 1:  # the peer is asked already
            return
        self._drains = not self._session.owner.limits.is_rabbitmq_3  # which ends the session over it
        self._session.flow(
            handle=0,
            delivery_count=self._delivery_count,
            link_credit=self._credit if self._drains else 0,
            drain=self._drains or None,
            echo=True,
        )

    def settle(self, tag: int, *, multiple: bool, is_accepted: bool) -> None:
        last = tag or self._last
        first = self._settled.up_to + 1 if multiple else last
        if last > self._last:
            raise CodecError("a delivery is settled that hasn't come")
        if first > last:
            return
        state = (performatives.ACCEPTED if is_accepted else performatives.RELEASED).encode()
        is_counted = self._terminus.is_counted  # the peer settles it, too, once it has read this
        self._session.send(
            performatives.DISPOSITION.encode(
                role=True, first=self._id(first), last=self._id(last), settled=not is_counted, state=state
            )
        )
        if is_counted and last not in self._settled:
            self._unread = self._id(last)
        self._settled.add(first, last)
        self._grant()

    def leave(self) -> None:
        self._tag, self._partial = "", None

    # What the peer does

    def attached(self, performed: Performed) -> None:
        if performed["source"] is None:
            return  # the reason follows, with its end
        if performed["snd_settle_mode"] == _SETTLED and self._awaited is methods.BASIC_CONSUME_OK and not self._no_ack:
            self._session.refuse(_SENDS_SETTLED)
            return
        self._is_attached = True
        self._quick = None if performed["handle"] else _UINT_0
        self._delivery_count = performed["initial_delivery_count"] or 0
        self._session.unapplied(self._unapplied(performed["source"]))
        self._answer()

    def quickly(self, data: bytes, begin: int, after: int) -> bool:
        """Take a transfer that is a whole message, and encoded as most peers do; return False if it is another one.

        This is where the time goes: reading all fields in their order takes five times as long.
        """
        if self._partial is not None or not self._credit:
            return False
        at, code = begin + 7, data[begin + 7]
        if code == 0x70:
            delivery_id = int.from_bytes(data[at + 1 : at + 5])
            at += 5
        elif code == 0x52:
            delivery_id = data[at + 1]
            at += 2
        elif code == 0x43:
            delivery_id = 0
            at += 1
        else:
            return False
        if data[begin + 6] != self._quick or data[at] != 0xA0:  # the handle, and the delivery's tag
            return False
        payload = begin + 5 + data[begin + 4]
        if payload > after or data[at + 2 + data[at + 1] : payload] not in _WHOLE:
            return False
        self._count(delivery_id)
        self._deliver(data[payload:after])
        return True

    def transferred(self, performed: Performed, payload: memoryview) -> None:
        if self._partial is None:
            self._count(performed["delivery_id"])
            self._partial, self._partial_id = bytearray(), performed["delivery_id"]
            self._partial_format = performed["message_format"] or 0
        elif performed["delivery_id"] not in (None, self._partial_id):
            raise CodecError("a message that begins before the end of another")
        if performed["aborted"]:
            self._partial = None
            self._skip_id()
            self._grant()
            return
        if len(self._partial) + len(payload) > LARGEST_MESSAGE:
            raise CodecError(f"a message of more than {LARGEST_MESSAGE} bytes")
        self._partial += payload
        if not performed["more"]:
            message = bytes(self._partial)
            self._partial = None
            self._deliver(message, self._partial_format)

    def disposition(self, performed: Performed) -> None:
        """The peer settles what it sent. It reads in order, so it has read all that was said before that."""
        first, last = performed["first"], performed["last"]
        count = 0 if last is None else (last - first) % _SERIAL
        while performed["settled"] and self._asked and (self._asked[0] - first) % _SERIAL <= count:
            self._asked.popleft()
            self._session.say(methods.BASIC_QOS_OK)
        if performed["settled"] and self._unread is not None and (self._unread - first) % _SERIAL <= count:
            self._unread = None

    def flow(self, performed: Performed) -> None:
        if performed["delivery_count"] is not None:
            self._delivery_count = performed["delivery_count"]
        if self._cancelled and not performed["link_credit"] and performed["drain"] is self._drains:
            self._drained()
        elif performed["drain"] and not performed["link_credit"]:  # a late answer: it has taken back what came since
            self._credit = 0
            self._grant()
        elif performed["echo"]:
            self._session.flow(handle=0, delivery_count=self._delivery_count, link_credit=self._credit)

    def detached(self, refusal: PeerRefusal) -> None:
        """The peer has ended the link. That a queue is gone is said to its consumer, as by 0-9-1."""
        was_attached, self._is_attached = self._is_attached, False
        if was_attached and self._tag and refusal.condition == "amqp:resource-deleted":
            self._session.say(methods.BASIC_CANCEL, consumer_tag=self._tag, nowait=True)
        else:
            self._session.refuse(refusal)

    # Inside

    def _answer(self) -> None:
        answer, self._awaited = self._awaited, None
        if answer is methods.BASIC_CONSUME_OK:
            self._session.say(answer, consumer_tag=self._tag)
            self._grant()
        elif answer is not None:
            self._session.say(answer)

    def _unapplied(self, source: Performed | Value) -> tuple[str, ...]:
        """The arguments of the consumer that aren't among the filters of the peer's own source."""
        filters = (source["filter"] if isinstance(source, Performed) else None) or {}
        applied = {name for key, each in filters.items() if each != NULL for name in (key, _descriptor(each))}
        return tuple(name for name, _ in self._terminus.filters if _NAMES.get(name, name) not in applied)

    def _drained(self) -> None:
        self._credit = 0
        while self._cancelled:
            self._session.say(methods.BASIC_CANCEL_OK, consumer_tag=self._cancelled.popleft())
        self._grant()  # another consumer may have begun

    def _grant(self) -> None:
        """Give the peer credit for what may come, but not for each delivery by itself."""
        if not self._tag or not self._is_attached or self._cancelled:
            return
        wanted = (_UNLIMITED_CREDIT if self._no_ack else self._prefetch or _UNLIMITED_CREDIT) - self._unsettled
        if wanted > self._credit and (not self._credit or wanted - self._credit >= max(1, self._prefetch // 4)):
            self._credit = wanted
            self._session.flow(handle=0, delivery_count=self._delivery_count, link_credit=wanted)

    def _converted(self, message: bytes) -> Taken:
        found = to_091(message, find_sections(message))
        if found.lost:
            self._session.lost(found.lost)
        address = b"".join(bytes((len(name),)) + name for name in (found.exchange, found.routing_key))
        return Taken(found.properties, found.body, found.is_redelivered, address)

    def _count(self, delivery_id: int | None) -> None:
        """Count a message that begins."""
        if delivery_id is None or not (self._credit or self._session.owner.limits.is_rabbitmq_3):  # it can't drain
            raise CodecError("a message without credit for it, or without an id")
        self._credit = max(0, self._credit - 1)
        self._delivery_count = (self._delivery_count + 1) % _SERIAL
        offset = (delivery_id - self._last - 1) % _SERIAL
        if offset != self._offset:
            if self._unsettled:
                raise CodecError("delivery ids that don't follow one another")
            self._offset = offset
            self._runs.clear()

    def _skip_id(self) -> None:
        """An aborted message has an id and no tag: from the next one on, both differ by one more."""
        self._runs = [run for run in self._runs if self._unsettled and run[0] > self._settled.up_to]
        if self._unsettled and (not self._runs or self._runs[-1][0] < self._last):
            self._runs.append((self._last, self._offset))
        if len(self._runs) > MOST_ABORTED:
            raise CodecError(f"{len(self._runs)} aborted messages between others that aren't settled")
        self._offset = (self._offset + 1) % _SERIAL

    def _id(self, tag: int) -> int:
        offset = next((former for last, former in self._runs if tag <= last), self._offset)
        return (tag + offset) % _SERIAL

    def _taken(self, message: bytes, message_format: int) -> Taken:
        """What can't be read, or is of another format than AMQP's own, is marked."""
        if not message_format:
            with suppress(CodecError):  # a publisher may have made it so, and the peer may not have looked
                return self._bare.take(message) if self._terminus.is_bare else self._converted(message)
        return Taken(_UNREADABLE, message, False, NO_ADDRESS)

    def _deliver(self, message: bytes, message_format: int = 0) -> None:
        self._last += 1
        properties, body, is_redelivered, address = self._taken(message, message_format)
        number, size, feed = self._session.number, len(body), self._session.owner.feed
        delivery = self._prefix + _TAG_AND_FLAG.pack(self._last, is_redelivered) + address
        feed(wire.PREFIX.pack(wire.METHOD, number, len(delivery)))
        feed(delivery)
        feed(_HEADER.pack(wire.END, wire.HEADER, number, _PROPERTIES_AT + len(properties), wire.BASIC, 0, size))
        feed(properties)
        feed(wire.END_BYTE)
        for at in range(0, size, _BODY):
            part = body if size <= _BODY else memoryview(body)[at : at + _BODY]
            feed(wire.PREFIX.pack(wire.BODY, number, len(part)))
            feed(part)
            feed(wire.END_BYTE)
        if not self._credit:  # a peer that has used up its credit needn't say that it is drained
            (self._drained if self._cancelled else self._grant)()
