"""Opens AMQP connections from URIs; every error names the endpoint and what to do about it.

Why: docs/decisions/0020-passwords-without-restart.md
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Self

import structlog

from agent.amqp.failures import NoAccessError, lost, opening_failed, update_failed
from agent.amqp.wire.channel import CLOSE_PATIENCE, Channel
from agent.amqp.wire.connection import MOST_CHANNELS, WireConnection
from agent.amqp.wire.ends import one_line
from agent.amqp.wire.login import DEFAULT_MECHANISMS, PATIENCE, Terms
from agent.amqp.wire.tables import MAX_SHORT
from agent.core import fields
from agent.core.addresses.expiry import token_expiry
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import DEFAULT_CONNECTION_TIMEOUT, DEFAULT_HEARTBEAT, AmqpUri
from agent.core.fields import Field, Table
from agent.errors import BrokerError, Failure, FailureKind, PermanentError, TransientError, joined
from agent.look_up import addresses_of
from agent.network import explain, server_name, tls_context, why_os
from agent.tasks import GuardedTasks, report_unforeseen
from agent.version import VERSION

PRODUCT = "federation-agent"
_TLS_SHUTDOWN = 5.0
LONGEST_STEP = 20.0
"""The most seconds for one address, and for the login: what was lost in an outage doesn't arrive later. Brokers wait
for ten seconds themselves."""
LEAST_PATIENCE = 5.0  # seconds for a response: a broker has other work, too
BLOCKED_PATIENCE = 1.0  # a broker that reads nothing doesn't answer a close either
MOST_ADDRESSES = 1_000
_DAY = 86_400

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Server:
    """The properties that the broker reports about itself."""

    product: str
    version: str
    cluster_name: str | None

    @property
    def outlives_unknown_types(self) -> bool:
        """True if an unknown exchange type closes only the channel, not the whole connection."""
        return self._is_rabbitmq_since(3, 13, 3)

    @property
    def may_refuse_transient_queues(self) -> bool:
        """True if the broker may be configured to close the connection over a transient queue that isn't exclusive."""
        return self._is_rabbitmq_since(3, 12)

    @property
    def limits_deliveries(self) -> bool:
        """True if its quorum queues drop a message that was returned 20 times, unless configured otherwise."""
        return self._is_rabbitmq_since(4, 0)

    @property
    def forgives_nacks(self) -> bool:
        """True if a message that is returned by basic.nack doesn't count against the limit of `limits_deliveries`."""
        return self._is_rabbitmq_since(4, 3)

    @property
    def shows_queues(self) -> bool:
        """True if it also shows by AMQP 1.0 how many messages wait in a queue, and declares one."""
        return self._is_rabbitmq_since(4, 0)

    def _is_rabbitmq_since(self, *release: int) -> bool:
        found = tuple(int(part) for part in re.findall(r"\d{1,9}", self.version)[:3])
        return self.product == "RabbitMQ" and found >= release

    @classmethod
    def read(cls, properties: Table) -> Server:
        return cls(
            product=one_line(_text(fields.get(properties, "product")) or ""),
            version=one_line(_text(fields.get(properties, "version")) or ""),
            cluster_name=_name(_text(fields.get(properties, "cluster_name"))),
        )


def _text(field: Field | None) -> str | None:
    return field.value if field is not None and field.tag == "S" else None


def _name(text: str | None) -> str | None:
    """The cluster's name; None if it is too long for a name, since it is added to every message's headers."""
    return None if text is None or len(text.encode("utf-8", "surrogateescape")) > MAX_SHORT else text


class Connection:
    """An open connection. Use it with `async with`, or close it."""

    def __init__(self, uri: AmqpUri, wire: WireConnection, terms: Terms, *, takes_secrets: bool = True) -> None:
        """`takes_secrets`: the broker may be given another token while the connection is open."""
        self.uri = uri
        self.wire = wire
        self.where = terms.where
        self.vhost = terms.vhost
        self._user = terms.user
        self._takes_secrets = takes_secrets
        self.server = Server.read(wire.server_properties)
        self._listeners: list[Callable[[str | None], None]] = []
        wire.on_blocked = self._notify_blocked

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @cached_property
    def cluster(self) -> str | None:
        """The name that the broker gives its cluster, made safe to show, since the peer chooses it."""
        name = self.server.cluster_name
        return None if name is None else one_line(self.wire.redacted(name))

    @property
    def blocked(self) -> str | None:
        """The reason why the broker takes no messages, None if it does; it may be blocked as soon as the login is
        done."""
        return self.wire.blocked

    @property
    def is_closed(self) -> bool:
        return self.wire.closed.done()

    @property
    def channel_max(self) -> int:
        """The number of channels that may be open at once."""
        return self.wire.channel_max or MOST_CHANNELS

    async def channel(self) -> Channel:
        channel = self.wire.begin_channel()
        await channel.opened
        return channel

    def listen_blocked(self, listener: Callable[[str | None], None]) -> Callable[[], None]:
        """Call `listener` with the reason when the broker blocks this connection, and at once if it is blocked; with
        None when it unblocks it. Return a function to stop."""
        if self.blocked is not None:
            listener(self.blocked)
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _notify_blocked(self, reason: str | None) -> None:
        for listener in tuple(self._listeners):
            listener(reason)

    async def update_secret(self, secret: Secret) -> None:
        """Give the broker another password or token of the same user, such as a token that was renewed before its end.

        A broker that refuses it closes the connection. If the broker doesn't answer, the former one stays in use.
        Raises BrokerError in both cases.
        """
        try:
            await self.wire.update_secret(secret, "renewed")
        except BrokerError as error:
            raise update_failed(error, where=self.where, user=self._user) from error

    def renew(self, uri: AmqpUri, tasks: GuardedTasks) -> None:
        """Use `uri`, which has another password, from now on. The broker gets the password only if it is a token that
        expires: brokers end what was opened with an expired token, and check other passwords at login only."""
        self.uri = uri
        if self._takes_secrets and uri.password is not None and token_expiry(uri.password.reveal()) is not None:
            tasks.once("renew a token", self._send(uri.password))

    async def _send(self, token: Secret) -> None:
        """Send the token. A broker that refuses it closes the connection, and its users connect again."""
        try:
            await self.update_secret(token)
        except BrokerError as error:
            log.warning("token not renewed", reason=str(error))
        else:
            log.info("token renewed", broker=self.where)

    async def close(self) -> None:
        """Close the connection; calling it again, or after the connection was lost, does nothing."""
        if self.is_closed:
            return
        error = TransientError("the agent closed the connection", where=self.where)
        patience = CLOSE_PATIENCE if self.blocked is None else BLOCKED_PATIENCE
        await self.wire.close(error, patience=patience)


class LastHeard:
    """The last time that anything was received from each address, over all connections that were open there: a broker
    that answered a minute ago and doesn't now is frozen, and its port isn't another server's."""

    def __init__(self) -> None:
        self._open: dict[WireConnection, tuple[str, int]] = {}
        self._ended: dict[tuple[str, int], float] = {}  # by the loop's clock

    def follow(self, wire: WireConnection, address: tuple[str, int]) -> None:
        self._open[wire] = address
        wire.closed.add_done_callback(lambda _: self._end(wire))

    def _end(self, wire: WireConnection) -> None:
        address = self._open.pop(wire)
        self._ended[address] = max(wire.inbound.heard, self._ended.pop(address, 0.0))
        if len(self._ended) > MOST_ADDRESSES:
            self._ended.pop(next(iter(self._ended)))

    def is_answering(self, address: tuple[str, int], since: float) -> bool:
        """True if a connection that is open there has received anything since then."""
        return any(each == address and wire.inbound.heard > since for wire, each in self._open.items())

    def time_of(self, address: tuple[str, int]) -> str | None:
        """The UTC time when the address was last heard from, with the date if that is over a day ago; None if no AMQP
        connection was open there."""
        heard = [wire.inbound.heard for wire, each in self._open.items() if each == address]
        if address in self._ended:
            heard.append(self._ended[address])
        if not heard:
            return None
        ago = asyncio.get_running_loop().time() - max(heard)
        shown = datetime.fromtimestamp(time.time() - ago, UTC)
        return shown.strftime("%H:%M:%S" if ago < _DAY else "%Y-%m-%d %H:%M:%S")


Wired = Callable[[AmqpUri, Terms], tuple[WireConnection, asyncio.BaseProtocol]]
"""Makes a connection, and the protocol of its socket: the connection itself, or what translates for it."""


def plain(_: AmqpUri, terms: Terms) -> tuple[WireConnection, asyncio.BaseProtocol]:
    wire = WireConnection(terms)
    return wire, wire


async def connect(
    uri: AmqpUri,
    *,
    where: str,
    name: str,
    default_vhost: str = "/",
    within: float | None = None,
    heard: LastHeard | None = None,
    wired: Wired = plain,
) -> Connection:
    """Connect to one endpoint. Errors start with `where` ("upstream origin"), and the broker shows `name`. `within` is
    in seconds, for all steps together, and defaults to the URI's connection_timeout. If neither is given, each step has
    its own limit, too. `heard` holds when other connections of this process last heard from their brokers. `wired`
    makes the connection, for another protocol than AMQP 0-9-1."""
    if uri.is_downstream_itself:
        raise PermanentError("the URI names no host", where=where)
    seconds = within or (uri.connection_timeout or DEFAULT_CONNECTION_TIMEOUT) / 1000
    step = seconds if within or uri.connection_timeout else min(LONGEST_STEP, seconds)
    terms = _terms(uri, where, default_vhost)
    heard = heard or LastHeard()
    address = uri.connect_host, uri.connect_port
    began = asyncio.get_running_loop().time()
    wire: WireConnection | None = None
    hanging: set[str] = set()
    try:
        async with asyncio.timeout(seconds):
            wire = await _open_socket(uri, terms, step, wired, within=seconds, hanging=hanging)
            async with asyncio.timeout(step):
                await wire.open({"product": PRODUCT, "version": VERSION, "connection_name": name})
            if (end := _end_of(wire)) is not None:  # it accepted the login and then closed the connection
                raise end
    except OSError as error:
        is_timeout = wire is not None and isinstance(error, TimeoutError)
        if is_timeout or (hanging and not isinstance(error, ssl.SSLError)):
            facts = Failure(FailureKind.NOT_ANSWERING)
            raise TransientError(_silent(heard, address, began, step), where=terms.where, facts=facts) from error
        raise explain(error, where=terms.where, seconds=step) from error
    except BrokerError as error:
        if wire is None or error is not _end_of(wire) or isinstance(error, PermanentError):  # which says all itself
            raise
        raise opening_failed(error, terms, wire.mechanism, uri.tls) from error
    finally:
        if wire is not None and not wire.is_open:
            wire.abort(TransientError("given up", where=terms.where))
    wire.explain = partial(lost, where=terms.where)
    heard.follow(wire, address)
    return Connection(uri, wire, terms, takes_secrets=wired is plain)  # AMQP 1.0 has no method for that


def _silent(heard: LastHeard, address: tuple[str, int], began: float, seconds: float) -> str:
    until = heard.time_of(address)
    if until is None:
        return (
            f"connected, but no AMQP within {seconds:g} s: the broker is frozen or overloaded, or this is no AMQP port"
        )
    if heard.is_answering(address, began):  # with a time, each attempt would fail for another reason
        return (
            "it accepts connections and doesn't answer new ones: overloaded, or one of several brokers there is frozen?"
        )
    return f"it accepts connections and doesn't answer, it did until {until}: frozen or overloaded?"


def _end_of(wire: WireConnection) -> BrokerError | None:
    return wire.closed.result() if wire.closed.done() else None


async def connect_any(
    uris: Sequence[AmqpUri],
    *,
    where: str,
    name: str,
    default_vhost: str = "/",
    within: float | None = None,
    heard: LastHeard | None = None,
    wired: Wired = plain,
) -> Connection:
    """Connect to the first endpoint that accepts the login, in the given order."""
    failures: list[BrokerError] = []
    for uri in uris:
        try:
            return await connect(
                uri, where=where, name=name, default_vhost=default_vhost, within=within, heard=heard, wired=wired
            )
        except BrokerError as error:
            failures.append(error)
    if not failures:
        raise PermanentError("no endpoint is given", where=where)
    kind = NoAccessError if all(isinstance(error, NoAccessError) for error in failures) else PermanentError
    raise joined(failures, TransientError, kind)


def _terms(uri: AmqpUri, where: str, default_vhost: str) -> Terms:
    user, password = uri.login
    return Terms(
        where=f"{where} {uri.host}:{uri.connect_port}",
        vhost=uri.vhost(default_vhost),
        user=user,
        password=password,
        mechanisms=uri.mechanisms or DEFAULT_MECHANISMS,
        heartbeat=DEFAULT_HEARTBEAT if uri.heartbeat is None else uri.heartbeat,
        channel_max=uri.channel_max,
        frame_max=uri.frame_max,
        patience=max(uri.connection_timeout / 1000, LEAST_PATIENCE) if uri.connection_timeout else PATIENCE,
    )


async def _open_socket(
    uri: AmqpUri, terms: Terms, step: float, wired: Wired, *, within: float, hanging: set[str]
) -> WireConnection:
    """Open a connection at the first address of the host that answers. Addresses that accept TCP connections and don't
    finish TLS are in `hanging`."""
    until = asyncio.get_running_loop().time() + within
    context = None if uri.tls is None else await tls_context(uri.tls, where=terms.where)
    addresses = await addresses_of(uri.connect_host)
    return await first_to_answer(
        addresses,
        lambda address: _open_at(address, uri, terms, context, wired, hanging=hanging),
        step=step,
        until=until,
    )


async def _open_at(
    address: str, uri: AmqpUri, terms: Terms, context: ssl.SSLContext | None, wired: Wired, *, hanging: set[str]
) -> WireConnection:
    loop = asyncio.get_running_loop()
    wire, protocol = wired(uri, terms)
    if uri.tls is None or context is None:
        await loop.create_connection(lambda: protocol, address, uri.connect_port)
        return wire
    reached = await _reach(address, uri.connect_port)
    hanging.add(address)
    try:
        await loop.create_connection(
            lambda: protocol,
            sock=reached,
            ssl=context,
            server_hostname=server_name(uri.tls, uri.connect_host),
            ssl_shutdown_timeout=_TLS_SHUTDOWN,
        )
    except OSError:
        hanging.discard(address)
        raise
    return wire


async def _reach(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    reached = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # or asyncio leaves Nagle's delay on
    with ExitStack() as unless_reached:
        unless_reached.callback(reached.close)
        reached.setblocking(False)
        await asyncio.get_running_loop().sock_connect(reached, (address, port))
        unless_reached.pop_all()
    return reached


Opener = Callable[[str], Awaitable[WireConnection]]


async def first_to_answer(addresses: Sequence[str], opener: Opener, *, step: float, until: float) -> WireConnection:
    """Return the first connection that opens. Each address has `step` seconds, but no longer than until `until`, by the
    loop's clock. The last attempt begins before half of that time is over: even of many addresses, none may have too
    little time for a slow line.

    Raises OSError; ssl.SSLError ends it for all addresses, as they have the same certificate.
    """
    seconds = min(step, until - asyncio.get_running_loop().time())
    pause = seconds / (2 * len(addresses))
    running: dict[asyncio.Future[WireConnection], str] = {}
    failures: dict[str, OSError] = {}
    left = list(reversed(addresses))
    try:
        while left or running:
            if left:
                address = left.pop()
                running[asyncio.ensure_future(_opened(address, opener, step, until))] = address
            done, _ = await asyncio.wait(running, timeout=pause if left else None, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                address, error = running.pop(each), each.exception()
                if error is None:
                    return each.result()
                if isinstance(error, ssl.SSLError) or not isinstance(error, OSError):
                    raise error
                failures[address] = error
    finally:
        await _give_up(running)
    errors = [failures[address] for address in addresses]
    is_one = len({each.errno or each for each in errors}) == 1
    raise errors[0] if is_one else OSError("; ".join(dict.fromkeys(map(why_os, errors))))


async def _opened(address: str, opener: Opener, step: float, until: float) -> WireConnection:
    seconds = min(step, until - asyncio.get_running_loop().time())
    try:
        async with asyncio.timeout(seconds):
            return await opener(address)
    except TimeoutError:
        raise TimeoutError(f"no answer of {address} within {seconds:.3g} s") from None


async def _give_up(running: dict[asyncio.Future[WireConnection], str]) -> None:
    for each in running:
        each.cancel()
    if running:
        await asyncio.wait(running)
    for each, address in running.items():
        error = None if each.cancelled() else each.exception()
        if error is not None and not isinstance(error, OSError):
            report_unforeseen((each,))
        elif not each.cancelled() and error is None:
            each.result().abort(TransientError(f"another address answered before {address}"))
