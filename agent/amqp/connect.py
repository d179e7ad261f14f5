"""Opens AMQP connections for declaring and asking; messages travel elsewhere."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from types import TracebackType
from typing import Any, Self

from aiormq.abc import AbstractChannel
from aiormq.exceptions import AMQPChannelError, AMQPError, ConnectionClosed
from yarl import URL

from agent.amqp.failures import lost, opening_failed, refused, reply
from agent.amqp.handshake import DEFAULT_MECHANISMS, Handshake, Stream, Terms
from agent.core.uri import DEFAULT_CONNECTION_TIMEOUT, DEFAULT_HEARTBEAT, AmqpUri
from agent.errors import BrokerError, PermanentError, TransientError
from agent.network import explain, server_name, tls_context

PRODUCT = "federation-agent"


@dataclass(frozen=True, slots=True)
class Server:
    """What the broker tells about itself."""

    product: str
    version: str
    cluster_name: str | None
    capabilities: frozenset[str]

    @classmethod
    def read(cls, properties: Mapping[str, Any]) -> Server:
        capabilities = properties.get("capabilities")
        name = properties.get("cluster_name")
        return cls(
            product=str(properties.get("product", "")),
            version=str(properties.get("version", "")),
            cluster_name=name if isinstance(name, str) else None,
            capabilities=frozenset(key for key, value in capabilities.items() if value)
            if isinstance(capabilities, dict)
            else frozenset(),
        )


class Connection:
    """An open connection; `raw` is aiormq's. Use it with `async with`, or close it."""

    def __init__(self, raw: Handshake, *, where: str, vhost: str) -> None:
        self.raw = raw
        self.where = where
        self.vhost = vhost
        self.server = Server.read(raw.server_properties or {})
        self._closed_by_us = False
        # aiormq would take a number again before it has confirmed the broker's close of it (504, connection lost).
        self._numbers = itertools.cycle(range(1, self.channel_max + 1))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def is_closed(self) -> bool:
        return self.raw.is_closed

    @property
    def channel_max(self) -> int:
        """How many channels may be open at once."""
        return self.raw.connection_tune.channel_max or 65535

    async def channel(self) -> AbstractChannel:
        """A new channel, without confirms."""
        tried = itertools.islice(self._numbers, self.channel_max)
        number = next((number for number in tried if number not in self.raw.channels), None)
        if number is None:
            raise TransientError(f"{self.where}: all {self.channel_max} channels are in use")
        async with self.telling():
            return await self.raw.channel(number, publisher_confirms=False)

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        """Around a use of `raw`: what aiormq raises when the connection is lost becomes why it was lost.

        Errors of a channel pass unchanged.
        """
        try:
            yield
        except AMQPChannelError:
            raise
        except asyncio.CancelledError as error:
            # aiormq cancels what waits when it misses heartbeats; whoever cancels us leaves a count.
            task = asyncio.current_task()
            if self.raw.is_opened or (task is not None and task.cancelling()):
                raise
            raise await self._why_lost(error) from error
        except (AMQPError, RuntimeError, OSError) as error:
            raise await self._why_lost(error) from error

    async def _why_lost(self, error: BaseException) -> BrokerError:
        if self.raw.is_opened:
            return TransientError(f"{self.where}: the channel failed: {type(error).__name__}")
        return await self.wait_closed() or TransientError(f"{self.where}: the agent closed the connection")

    async def wait_closed(self) -> BrokerError | None:
        """Waits for the end and tells why; None when `close` was called."""
        closing = self.raw.closing
        await asyncio.wait([closing])
        if self._closed_by_us:
            return None
        error = None if closing.cancelled() else closing.exception()
        return lost(error, where=self.where, heartbeat=self.raw.heartbeat_timeout)

    async def close(self) -> None:
        """Says goodbye to the broker; calling it again, or after the connection was lost, does nothing."""
        if not self.is_closed:
            self._closed_by_us = True
            await self.raw.close(ConnectionClosed(200, "closed by the agent"))


async def connect(
    uri: AmqpUri, *, where: str, name: str, default_vhost: str = "/", within: float | None = None
) -> Connection:
    """Connects to the one endpoint; `where` ("upstream origin") leads its errors, `name` is what the broker shows.

    `within` is in seconds, for the whole of it, and defaults to the URI's connection_timeout.
    """
    if uri.is_downstream_itself:
        raise PermanentError(f"{where}: the URI names no host")
    place = f"{where} {uri.host}:{uri.connect_port}"
    seconds = within or (uri.connection_timeout or DEFAULT_CONNECTION_TIMEOUT) / 1000
    user, password = uri.login
    terms = Terms(
        where=place,
        vhost=uri.vhost(default_vhost),
        user=user,
        password=password,
        mechanisms=uri.mechanisms or DEFAULT_MECHANISMS,
        heartbeat=DEFAULT_HEARTBEAT if uri.heartbeat is None else uri.heartbeat,
        channel_max=uri.channel_max,
        frame_max=uri.frame_max,
    )
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        async with asyncio.timeout_at(deadline):
            stream = await _stream(uri, place)
    except OSError as error:
        raise explain(error, where=place, seconds=seconds) from error
    try:
        async with asyncio.timeout_at(deadline):
            raw = await _handshake(stream, uri, terms, name)
    except TimeoutError as error:
        raise TransientError(
            f"{place}: connected, but no AMQP within {seconds:g} s: check that this is an AMQP port"
        ) from error
    except (AMQPError, OSError, EOFError) as error:
        raise opening_failed(error, where=place) from error
    return Connection(raw, where=place, vhost=terms.vhost)


async def connect_any(
    uris: Sequence[AmqpUri], *, where: str, name: str, default_vhost: str = "/", within: float | None = None
) -> Connection:
    """Connects to the first endpoint that lets us in, in the order given."""
    failures: list[BrokerError] = []
    for uri in uris:
        try:
            return await connect(uri, where=where, name=name, default_vhost=default_vhost, within=within)
        except BrokerError as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    message = "; ".join(str(error) for error in failures) or f"{where}: no endpoint is given"
    if any(isinstance(error, TransientError) for error in failures):
        raise TransientError(message) from failures[0]
    raise PermanentError(message) from (failures[0] if failures else None)


async def _stream(uri: AmqpUri, where: str) -> Stream:
    context = None if uri.tls is None else await asyncio.to_thread(tls_context, uri.tls, where=where)
    name = None if uri.tls is None else server_name(uri.tls, uri.connect_host)
    return await Stream.open(uri.connect_host, uri.connect_port, where=where, context=context, server_name=name)


async def _handshake(stream: Stream, uri: AmqpUri, terms: Terms, name: str) -> Handshake:
    address = URL(f"{uri.scheme}://{uri.host}:{uri.connect_port}", encoded=True)
    properties = {"product": PRODUCT, "version": version(PRODUCT), "connection_name": name}
    raw = Handshake(stream, terms, address=address, properties=properties)
    try:
        await raw.connect()
    except ConnectionClosed as error:
        code, text = reply(error)
        raise refused(
            code, text, where=terms.where, user=terms.user, vhost=terms.vhost, mechanism=raw.mechanism
        ) from error
    except BaseException:
        stream.writer.close()
        raise
    return raw
