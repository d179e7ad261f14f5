"""The pair of links by which RabbitMQ 4 shows and declares a queue: requests of HTTP as messages of AMQP 1.0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from agent.amqp.wire import methods
from agent.amqp.wire.refusal_texts import RESOURCE_ERROR
from agent.amqp.wire.tables import CodecError
from agent.amqp10 import performatives, sections
from agent.amqp10.conditions import PeerRefusal
from agent.amqp10.link import LinkSession
from agent.amqp10.performatives import Performed
from agent.amqp10.sections import PROPERTIES, VALUE, find_sections
from agent.amqp10.types import NULL, Value

LARGEST_ANSWER: Final = 16 * 1024
_NODE: Final = "/management"
_SENDER: Final = 0
_RECEIVER: Final = 1
_COUNTS: Final = ("message_count", "consumer_count")
_NUMBERS: Final = frozenset({"uint", "ulong"})
_MOST: Final = 2**32 - 1  # that a declaration's answer has room for
_SHOW: Final = ("GET", NULL)
_DECLARE: Final = ("PUT", Value("map", ()))  # durable, of the type that is the vhost's default
_SUCCEEDED: Final = "2"
_REFUSALS: Final = {"403": (403, "ACCESS_REFUSED"), "404": (404, "NOT_FOUND")}
_OTHER_REFUSAL: Final = (406, "PRECONDITION_FAILED")
_SHUT: Final = PeerRefusal(
    RESOURCE_ERROR, "RESOURCE_ERROR - the broker takes no requests: it has an alarm", "amqp:resource-limit-exceeded"
)


class ManagementLinks:
    """`queue` is the address of a queue, which is also where requests about it go. One request at a time."""

    handles: ClassVar[Mapping[bool, int]] = {True: _SENDER, False: _RECEIVER}  # by the peer's role
    has_more: Final = False

    def __init__(self, session: LinkSession, queue: str) -> None:
        self._session = session
        self._queue = queue
        self._request: tuple[str, Value] | None = None  # that waits to be written
        self._roles: set[bool] = set()  # that the peer has taken
        self._is_begun = False
        self._credit = 0
        self._sent = 0
        self._answered = 0
        self._answer = b""

    def show(self) -> None:
        """Answer a declaration with the numbers of the queue's messages and consumers, or refuse it."""
        self._ask(*_SHOW)

    def declare(self) -> None:
        """The same, once the queue is declared durable."""
        self._ask(*_DECLARE)

    def _ask(self, subject: str, body: Value) -> None:
        self._request = subject, body
        if not self._is_begun:
            self._is_begun = True
            for handle, is_receiver in ((_SENDER, False), (_RECEIVER, True)):
                self._session.send(_attach(handle, is_receiver=is_receiver))
        self.write()

    def leave(self) -> None:
        self._request = None

    # What the peer does

    def attached(self, performed: Performed) -> None:
        if performed["source"] is None or performed["target"] is None:
            return  # the reason follows, with its end
        self._roles.add(performed["role"])
        if not performed["role"]:
            self._grant()
        self.write()

    def flow(self, performed: Performed) -> None:
        if performed["link_credit"] is not None:
            self._credit = performed["link_credit"] - (self._sent - (performed["delivery_count"] or 0))
        self.write()

    def disposition(self, performed: Performed) -> None:
        """Nothing is left open: both sides settle what they send."""

    def detached(self, refusal: PeerRefusal) -> None:
        self._session.refuse(refusal)

    def transferred(self, performed: Performed, payload: memoryview) -> None:
        self._answer += payload
        if len(self._answer) > LARGEST_ANSWER:
            raise CodecError(f"more than {LARGEST_ANSWER} bytes about one queue")
        if performed["more"]:
            return
        answer, self._answer = self._answer, b""
        self._answered += 1
        self._grant()
        found = find_sections(answer)
        status = sections.properties(answer, found)["subject"] or ""
        body = next(sections.values(answer, found.body), NULL)
        if status.startswith(_SUCCEEDED) and body.type == "map":
            counts = {key.value: each.value for key, each in body.value if each.type in _NUMBERS}
            messages, consumers = (min(counts.get(name, 0), _MOST) for name in _COUNTS)
            self._session.say(methods.QUEUE_DECLARE_OK, messages=messages, consumers=consumers)
        else:
            code, name = _REFUSALS.get(status, _OTHER_REFUSAL)
            text = body.value if body.type == "string" else f"status {status}"
            self._session.refuse(PeerRefusal(code, f"{name} - {text}", ""))

    def write(self) -> None:
        """Write the request, if the peer takes one."""
        session = self._session
        if self._request is not None and session.is_shut:
            session.refuse(_SHUT)
            return
        if (
            self._request is None
            or len(self._roles) < len(self.handles)
            or self._credit <= 0
            or not session.may_transfer
        ):
            return
        (subject, body), self._request = self._request, None
        transfer = performatives.TRANSFER.encode(
            handle=_SENDER,
            delivery_id=self._sent,
            delivery_tag=self._sent.to_bytes(4),
            message_format=0,
            settled=True,
        )
        properties = PROPERTIES.encode(
            message_id=Value("ulong", self._sent), to=self._queue, subject=subject, reply_to=Value("string", "$me")
        )
        self._sent += 1
        self._credit -= 1
        session.transfer(transfer, memoryview(properties + sections.section(VALUE, body)))

    def _grant(self) -> None:
        self._session.flow(handle=_RECEIVER, delivery_count=self._answered, link_credit=1)


def _attach(handle: int, *, is_receiver: bool) -> bytes:
    return performatives.ATTACH.encode(
        name="management",
        handle=handle,
        role=is_receiver,
        snd_settle_mode=1,
        source=performatives.SOURCE.encode(address=_NODE),
        target=performatives.TARGET.encode(address=_NODE),
        initial_delivery_count=None if is_receiver else 0,
        properties={"paired": Value("boolean", True)},
    )
