"""aiormq's connection with what its URLs can't say: the exact vhost, every SASL mechanism, limits, hidden secrets."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import Any, cast

import pamqp.frame
from aiormq import Connection
from aiormq.auth import AuthMechanism
from aiormq.connection import FrameReceiver, TransportFactory
from aiormq.exceptions import ConnectionClosed, InvalidFrameError
from pamqp import commands
from pamqp.base import Frame
from pamqp.frame import FrameTypes
from yarl import URL

from agent.core.secret import Secret
from agent.core.uri import Mechanism
from agent.errors import PermanentError

DEFAULT_MECHANISMS = (Mechanism.PLAIN, Mechanism.AMQPLAIN)
_METHOD_FRAME, _PROTOCOL_HEADER = b"\x01", b"A"
_MAX_AMQPLAIN = 127
_TLS_SHUTDOWN = 5.0


@dataclass(frozen=True, slots=True)
class Terms:
    """What the client asks for; None leaves a limit to the broker."""

    where: str
    vhost: str
    user: str
    password: Secret
    mechanisms: tuple[Mechanism, ...]
    heartbeat: int
    channel_max: int | None = None
    frame_max: int | None = None

    def choose(self, offered: str | None) -> Mechanism:
        theirs = (offered or "").split()
        for mechanism in self.mechanisms:
            if mechanism.value.upper() in theirs:
                return mechanism
        ours = ", ".join(mechanism.value.upper() for mechanism in self.mechanisms)
        raise PermanentError(
            f"{self.where}: no common way to log in: the broker offers {', '.join(theirs)}; "
            f"auth_mechanism allows {ours}"
        )

    def response(self, mechanism: Mechanism) -> str:
        password = self.password.reveal()
        match mechanism:
            case Mechanism.PLAIN:
                return f"\0{self.user}\0{password}"
            case Mechanism.EXTERNAL:
                return ""
            case Mechanism.AMQPLAIN:
                return self._long_string("LOGIN", self.user) + self._long_string("PASSWORD", password)

    def _long_string(self, name: str, value: str) -> str:
        # aiormq sends the response as UTF-8 text, which a length's byte beyond ASCII would not survive.
        length = len(value.encode())
        if length > _MAX_AMQPLAIN:
            raise PermanentError(f"{self.where}: AMQPLAIN takes no more than {_MAX_AMQPLAIN} bytes here: use PLAIN")
        return f"{chr(len(name))}{name}S\0\0\0{chr(length)}{value}"


class Stream:
    """A TCP or TLS connection whose first byte says whether AMQP is spoken."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(
        cls, host: str, port: int, *, where: str, context: ssl.SSLContext | None, server_name: str | None
    ) -> Stream:
        loop = asyncio.get_running_loop()
        reader = _GreetedReader(where)
        protocol = asyncio.StreamReaderProtocol(reader)
        secured: dict[str, Any] = {}
        if context is not None:
            secured = {"ssl": context, "server_hostname": server_name, "ssl_shutdown_timeout": _TLS_SHUTDOWN}
        transport, _ = await loop.create_connection(lambda: protocol, host, port, **secured)
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


class _GreetedReader(asyncio.StreamReader):
    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where
        self._greeted = False

    async def readexactly(self, n: int) -> bytes:
        read = await super().readexactly(n)
        if not self._greeted and read[:1] not in {_METHOD_FRAME, _PROTOCOL_HEADER}:
            begin = read + await self.read(15)
            raise PermanentError(f"{self._where}: not AMQP: what answers there begins with {begin!r}: check the port")
        self._greeted = True
        return read


class _Opened(TransportFactory):
    """Hands over a stream opened beforehand, so that its failures are told once and in our words."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def create(self, url: URL, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:  # noqa: ARG002 - aiormq's signature
        return self._stream.reader, self._stream.writer


@dataclass(frozen=True, slots=True)
class _Credentials:
    """What aiormq takes for one of its mechanisms: `credentials.value(connection).marshal()`."""

    name: str
    _response: Secret

    def value(self, _connection: object) -> _Credentials:
        return self

    def marshal(self) -> str:
        return self._response.reveal()


class Handshake(Connection):
    """A connection by `Terms`; its URL, which aiormq logs, holds neither user nor password."""

    HEARTBEAT_GRACE_MULTIPLIER = 2
    # A full buffer makes aiormq forget to confirm a channel's close, which costs the connection (504).
    FRAME_BUFFER_SIZE = 0

    def __init__(self, stream: Stream, terms: Terms, *, address: URL, properties: dict[str, Any]) -> None:
        super().__init__(
            address.update_query(heartbeat=terms.heartbeat),
            transport_factory=_Opened(stream),
            client_properties=properties,
        )
        self.vhost = terms.vhost
        self.mechanism = terms.mechanisms[0]
        self._terms = terms

    def _credentials_class(self, start_frame: commands.Connection.Start) -> AuthMechanism:
        self.mechanism = self._terms.choose(start_frame.mechanisms)
        response = Secret(self._terms.response(self.mechanism))
        return cast("AuthMechanism", _Credentials(self.mechanism.value.upper(), response))

    # aiormq's own loses the code of a refusal that answers Connection.Open, and takes every limit offered.
    async def _rpc(  # type: ignore[override]  # a method where aiormq has a static one; it is called on the instance
        self, request: Frame, writer: asyncio.StreamWriter, frame_receiver: FrameReceiver, wait_response: bool = True
    ) -> FrameTypes | None:
        writer.write(pamqp.frame.marshal(request, 0))
        await writer.drain()
        if not wait_response:
            return None
        _, _, frame = await frame_receiver.get_frame()
        if isinstance(frame, commands.Connection.Close):
            raise ConnectionClosed(frame.reply_code, frame.reply_text)
        if isinstance(frame, commands.Connection.Tune):
            frame.channel_max = _lower(self._terms.channel_max, frame.channel_max)
            frame.frame_max = _lower(self._terms.frame_max, frame.frame_max)
        elif request.synchronous and frame.name not in request.valid_responses:
            raise InvalidFrameError(f"expected one of {request.valid_responses!r}")
        return frame


def _lower(ours: int | None, theirs: int | None) -> int:
    """0 means no limit to either side."""
    return min(limit for limit in (ours, theirs) if limit) if ours or theirs else 0
