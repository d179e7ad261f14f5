"""What the client asks of a connection, and how it says who it is."""

from __future__ import annotations

from dataclasses import dataclass

from agent.amqp.wire.tables import encode_table
from agent.core import fields
from agent.core.secret import Secret
from agent.core.uri import Mechanism
from agent.errors import PermanentError

DEFAULT_MECHANISMS = (Mechanism.PLAIN, Mechanism.AMQPLAIN)


@dataclass(frozen=True, slots=True)
class Terms:
    """None leaves a limit to the broker."""

    where: str
    vhost: str
    user: str
    password: Secret
    mechanisms: tuple[Mechanism, ...]
    heartbeat: int
    channel_max: int | None = None
    frame_max: int | None = None

    def choose(self, offered: str) -> Mechanism:
        theirs = offered.split()
        for mechanism in self.mechanisms:
            if mechanism.value.upper() in theirs:
                return mechanism
        ours = ", ".join(mechanism.value.upper() for mechanism in self.mechanisms)
        raise PermanentError(
            f"{self.where}: no common way to log in: the broker offers {', '.join(theirs)}; "
            f"auth_mechanism allows {ours}"
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
