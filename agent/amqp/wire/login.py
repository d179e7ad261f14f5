"""The client's limits for a connection, and its login."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from agent.amqp.wire import frames
from agent.amqp.wire.ends import one_line
from agent.amqp.wire.tables import encode_table
from agent.core import fields
from agent.core.addresses.secret import Secret, redacted
from agent.core.addresses.uri import Mechanism
from agent.core.fields import Table
from agent.errors import PermanentError, TransientError

PATIENCE: Final = 30.0
DEFAULT_MECHANISMS = (Mechanism.PLAIN, Mechanism.AMQPLAIN)
CAPABILITIES: Final = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "authentication_failure_close",
)


@dataclass(frozen=True, slots=True)
class Terms:
    """The login, the vhost and the limits of a connection. None leaves a limit to the broker."""

    where: str
    vhost: str
    user: str
    password: Secret
    mechanisms: tuple[Mechanism, ...]
    heartbeat: int
    channel_max: int | None = None
    frame_max: int | None = None
    patience: float = PATIENCE  # seconds in which the broker has to answer a question
    former_password: Secret | None = None

    def with_password(self, password: Secret) -> Terms:
        return replace(self, password=password, former_password=self.password)

    def redacted(self, text: str) -> str:
        """A broker's text without the passwords that it was given."""
        for password in (self.password, self.former_password):
            text = text if password is None else redacted(text, password, user=self.user)
        return text

    def agree_on_frame_max(self, theirs: int) -> int:
        """The lower of both frame limits, and never more than `frames.LARGEST`: without a limit, one frame could take
        all memory."""
        if 0 < theirs < frames.SMALLEST:
            raise TransientError(f"broken AMQP: frames of {theirs} bytes", where=self.where)
        return min(lower(self.frame_max, theirs) or frames.LARGEST, frames.LARGEST)

    def choose(self, offered: str) -> Mechanism:
        theirs = offered.split()
        for mechanism in self.mechanisms:
            if mechanism.value.upper() in theirs:
                return mechanism
        ours = ", ".join(mechanism.value.upper() for mechanism in self.mechanisms)
        raise PermanentError(
            f"no common way to log in: the broker offers {one_line(self.redacted(', '.join(theirs)))}; "
            f"auth_mechanism allows {ours}",
            where=self.where,
        )

    def response(self, mechanism: Mechanism) -> bytes:
        password = self.password.reveal()
        match mechanism:
            case Mechanism.PLAIN:
                return f"\0{self.user}\0{password}".encode()
            case Mechanism.EXTERNAL:
                return b""
            case Mechanism.AMQPLAIN:
                login = (("LOGIN", fields.text(self.user)), ("PASSWORD", fields.text(password)))
                return encode_table(login)[4:]


def client_properties(properties: Mapping[str, str]) -> Table:
    able = fields.table(tuple((name, fields.boolean(True)) for name in CAPABILITIES))
    return (*((key, fields.text(value)) for key, value in properties.items()), ("capabilities", able))


def lower(ours: int | None, theirs: int) -> int:
    """The lower of two limits; 0 means no limit."""
    return min(limit for limit in (ours, theirs) if limit) if ours or theirs else 0
