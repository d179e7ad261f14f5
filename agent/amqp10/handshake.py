"""The login and the opening of a connection by AMQP 1.0."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agent.amqp.wire.ends import one_line
from agent.amqp.wire.login import Terms
from agent.amqp.wire.tables import CodecError
from agent.amqp10 import performatives
from agent.amqp10.conditions import PeerRefusal, refusal_of
from agent.amqp10.performatives import Performed
from agent.amqp10.types import Value
from agent.core import fields
from agent.core.addresses.uri import Mechanism
from agent.core.fields import Table
from agent.errors import Failure, FailureKind, PermanentError

LARGEST_FRAME: Final = 256 * 1024  # that the peer may send: as much as one read brings
ANONYMOUS: Final = "ANONYMOUS"
_LOGIN_REFUSED: Final = PeerRefusal(403, "ACCESS_REFUSED - login refused", "amqp:unauthorized-access")
_WRONG_LOGIN: Final = 1  # of an outcome; all others are failures of the broker
_LOGIN_FAILED: Final = PeerRefusal(541, "INTERNAL_ERROR - the broker can't check the login now", "amqp:internal-error")
_IN_LOGIN: Final = PeerRefusal(320, "CONNECTION_FORCED - closed without a reason during the login", "")
_AFTER_LOGIN: Final = PeerRefusal(
    530,
    "NOT_ALLOWED - closed without a reason after the login: check that the vhost exists, and the user's access to it",
    "",
)
_MOST_CHANNELS: Final = 65_535
_SHOWN: Final = ("product", "version", "cluster_name")


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """The peer's properties and limits; `idle` is the time in seconds in which it wants to hear something, 0 for
    none."""

    properties: Table
    largest_frame: int
    channel_max: int
    idle: float

    @property
    def is_rabbitmq(self) -> bool:
        return fields.get(self.properties, "product") == fields.text("RabbitMQ")

    @property
    def shows_queues(self) -> bool:
        """True if it answers requests about its queues, as RabbitMQ does since 4.0."""
        return self.is_rabbitmq and not self.is_rabbitmq_3

    @property
    def is_rabbitmq_3(self) -> bool:
        """True if AMQP 1.0 is a plugin there."""
        version = fields.get(self.properties, "version")
        return self.is_rabbitmq and version is not None and str(version.value).startswith("3.")


UNKNOWN: Final = PeerLimits((), performatives.SMALLEST, 0, 0.0)


class Handshake:
    """Give it what the peer sends until `peer` or `refusal` is set."""

    def __init__(
        self, terms: Terms, *, name: str, hostname: str, is_anonymous: bool, send: Callable[[bytes], None]
    ) -> None:
        """`name` is what the broker shows; `is_anonymous`: the URI names no user."""
        self.peer: PeerLimits | None = None
        self.refusal: PeerRefusal | None = None
        self.mechanism: Mechanism | None = None
        self.user = b""  # that the peer knows; empty if a certificate or nothing says who that is
        self._terms = terms
        self._name = name
        self._hostname = hostname
        self._is_anonymous = is_anonymous
        self._named_nobody = False  # in the login
        self._send = send
        self.lost: PeerRefusal | None = None  # what it means if the peer hangs up now, if anything is known
        self._due = performatives.SASL_MECHANISMS
        self._header = performatives.SASL_HEADER  # that is due

    def begin(self) -> None:
        self._send(performatives.SASL_HEADER)

    def take(self, data: bytes, at: int) -> int:
        """Consume the header or frame at `at`; return its end, or `at` if it isn't complete, or follows a refusal."""
        if self.refusal is not None:
            return at
        if self._header:
            begin = data[at : at + len(self._header)]
            if not self._header.startswith(begin):
                raise self._not_amqp(begin)
            if len(begin) == len(self._header):
                self._header = b""
                at += len(begin)
            return at
        found = performatives.find_frame(data, at, LARGEST_FRAME)
        if found is None:
            return at
        _, _, begins, at = found
        if begins < at:
            self._received(performatives.decode(data, begins, end=at)[0])
        return at

    def _not_amqp(self, begin: bytes) -> PermanentError:
        return PermanentError(
            f"the server answers AMQP 1.0 with {self._terms.redacted(repr(begin))}: "
            "check the port; RabbitMQ before 4.0 needs its plugin rabbitmq_amqp1_0",
            where=self._terms.where,
            facts=Failure(FailureKind.INVALID),
        )

    def _anonymous_refused(self) -> PermanentError:
        return PermanentError(
            "the broker refuses ANONYMOUS logins, though it offers them: write a user and a password into the URI",
            where=self._terms.where,
            facts=Failure(FailureKind.LOGIN, vhost=self._terms.vhost),
        )

    def _received(self, performed: Performed) -> None:
        match performed.performative:
            case performatives.CLOSE:
                self.refusal = refusal_of(performed["error"])
            case other if other is not self._due:
                raise CodecError(f"{other.name} where {self._due.name} was due")
            case performatives.SASL_MECHANISMS:
                self._due, self.lost = performatives.SASL_OUTCOME, _IN_LOGIN
                self._log_in(performed["sasl_server_mechanisms"])
            case performatives.SASL_OUTCOME if performed["code"] == _WRONG_LOGIN and self._named_nobody:
                raise self._anonymous_refused()
            case performatives.SASL_OUTCOME if performed["code"]:
                self.refusal = _LOGIN_REFUSED if performed["code"] == _WRONG_LOGIN else _LOGIN_FAILED
            case performatives.SASL_OUTCOME:
                self._due, self.lost = performatives.OPEN, _AFTER_LOGIN
                self._header = performatives.PROTOCOL_HEADER
                self._send(performatives.PROTOCOL_HEADER + performatives.frame(0, self._open()))
            case _:
                self.peer = _peer(performed)

    def _log_in(self, offered: tuple[str, ...]) -> None:
        if self._is_anonymous and ANONYMOUS in offered:
            self._named_nobody = True
            mechanism, response = ANONYMOUS, b"federation-agent"
        else:
            self.mechanism = self._terms.choose(" ".join(offered))
            self.user = self._terms.user.encode() if self.mechanism is not Mechanism.EXTERNAL else b""
            mechanism, response = self.mechanism.value.upper(), self._terms.response(self.mechanism)
        init = performatives.SASL_INIT.encode(mechanism=mechanism, initial_response=response, hostname=self._hostname)
        self._send(performatives.frame(0, init, performatives.SASL))

    def _open(self) -> bytes:
        terms = self._terms
        return performatives.OPEN.encode(
            # Some brokers take a name only once; RabbitMQ shows it.
            container_id=f"{self._name} {os.urandom(4).hex()}",
            hostname=self._hostname,
            max_frame_size=LARGEST_FRAME,
            channel_max=terms.channel_max or _MOST_CHANNELS,
            idle_time_out=terms.heartbeat * 1000 or None,
            properties={"product": Value("string", "federation-agent"), "connection_name": Value("string", self._name)},
        )


def _peer(opened: Performed) -> PeerLimits:
    if opened["max_frame_size"] < performatives.SMALLEST:
        raise CodecError(
            f"frames of {opened['max_frame_size']} bytes: AMQP allows no fewer than {performatives.SMALLEST}"
        )
    found = opened["properties"] or {}
    shown = {name: found[name].value for name in _SHOWN if name in found and found[name].type == "string"}
    return PeerLimits(
        tuple((name, fields.text(one_line(value))) for name, value in shown.items()),
        opened["max_frame_size"],
        opened["channel_max"],
        (opened["idle_time_out"] or 0) / 1000,
    )
