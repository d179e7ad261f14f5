"""Streams in memory between agents and brokers: ordered and reliable as TCP, until they are cut, and as slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol, cast

from tests.simulation.loop import RUNNING, Process, SimulatedLoop

HIGH_WATER: Final = 64 * 1024
SYN_AGAIN: Final = 1.0


class Peer(Protocol):
    """The broker's end of a stream."""

    def received(self, data: bytes) -> None: ...

    def lost(self) -> None: ...


class Server(Protocol):
    @property
    def is_up(self) -> bool: ...

    def accept(self, stream: Stream) -> Peer: ...


class Pipe:
    """One direction. What is sent arrives later, in order, and in pieces."""

    def __init__(self, network: Network, deliver: Callable[[bytes], None]) -> None:
        self._network = network
        self._deliver = deliver
        self.waiting = bytearray()
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.is_silent = False  # nothing arrives: it is sent again and again, as TCP does
        self.is_held = False  # the receiver reads nothing
        self.is_over = False
        self.on_drained: Callable[[], None] | None = None

    def send(self, data: bytes) -> None:
        if self.is_over:
            return
        self.waiting += data
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is None and self.waiting and not (self.is_silent or self.is_held or self.is_over):
            loop = self._network.loop
            self._due = max(self._due, loop.time() + self._network.delay())
            self._timer = self._network.later(self._due, self._arrive)

    def _arrive(self) -> None:
        self._timer = None
        if self.is_silent or self.is_held or self.is_over:
            return
        size = self._network.piece(len(self.waiting))
        data = bytes(self.waiting[:size])
        del self.waiting[:size]
        self._deliver(data)
        if self.on_drained is not None:
            self.on_drained()
        self._schedule()

    def go_on(self) -> None:
        self._schedule()

    def end(self) -> None:
        self.is_over = True
        self.waiting.clear()
        if self._timer is not None:
            self._timer.cancel()


class Stream:
    """One connection; its two ends may learn of its end at different times."""

    def __init__(self, network: Network, server: Server, process: Process | None, host: str) -> None:
        self.network = network
        self.server = server
        self.process = process
        self.host = host
        self.transport: ClientTransport | None = None
        self.peer: Peer | None = None
        self.up = Pipe(network, self._to_server)
        self.down = Pipe(network, self._to_client)
        self.server_is_gone = self.client_is_gone = False

    def _to_server(self, data: bytes) -> None:
        if self.peer is not None and not self.server_is_gone:
            self.peer.received(data)

    def _to_client(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.feed(data)

    def lose_server(self) -> None:
        """The broker learns of the end."""
        if self.server_is_gone:
            return
        self.server_is_gone = True
        self.up.end()
        if self.peer is not None:
            self.peer.lost()
        self._forget()

    def lose_client(self, error: Exception | None = None) -> None:
        if self.client_is_gone:
            return
        self.client_is_gone = True
        self.down.end()
        if self.transport is not None:
            self.transport.lose(error)
        self._forget()

    def _forget(self) -> None:
        if self.server_is_gone and self.client_is_gone:
            self.network.streams.pop(self, None)

    def cut(self) -> None:
        """Both ends learn of it, each in its own time; what is on its way may arrive or not."""
        network = self.network
        network.after(network.delay(), self.lose_server)
        network.after(network.delay(), lambda: self.lose_client(ConnectionResetError("cut")))

    def silence(self, *, up: bool, down: bool) -> None:
        self.up.is_silent, self.down.is_silent = up, down
        self.up.go_on()
        self.down.go_on()

    def close_from_server(self) -> None:
        """What was sent arrives before the end."""
        if self.server_is_gone:
            return
        self.server_is_gone = True
        self.up.end()
        self._forget()
        self._end_when_read()

    def _end_when_read(self) -> None:
        if self.client_is_gone:
            return
        if self.down.is_silent:  # the end is as silent
            self.network.after(1.0, self._end_when_read)
        elif self.down.waiting:
            self.network.after(0.01, self._end_when_read)
        else:
            self.lose_client()


class ClientTransport(asyncio.Transport):
    """The agent's end."""

    def __init__(self, stream: Stream, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._stream = stream
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)
        self._is_closing = False
        self._is_full = False
        stream.up.on_drained = self._drained

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._stream.client_is_gone:
            return
        self._stream.network.on_write(self._stream, bytes(data))
        self._stream.up.send(bytes(data))
        if not self._is_full and len(self._stream.up.waiting) > self._stream.network.high_water:
            self._is_full = True
            self._protocol.pause_writing()

    def _drained(self) -> None:
        if self._is_full and len(self._stream.up.waiting) <= self._stream.network.high_water // 4:
            self._is_full = False
            self._in_process(self._protocol.resume_writing)

    def feed(self, data: bytes) -> None:
        self._in_process(self._feed, data)

    def _feed(self, data: bytes) -> None:
        if self._is_closing:
            return
        if not self._is_buffered:
            cast("asyncio.Protocol", self._protocol).data_received(data)
            return
        protocol = cast("asyncio.BufferedProtocol", self._protocol)
        while data:
            room = memoryview(protocol.get_buffer(-1))
            if not room:
                return
            taken = min(len(room), len(data))
            room[:taken] = data[:taken]
            protocol.buffer_updated(taken)
            data = data[taken:]

    def lose(self, error: Exception | None) -> None:
        self._in_process(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        self._is_closing = True
        self._protocol.connection_lost(error)

    def _in_process(self, callback: Callable[..., object], *arguments: Any) -> None:
        """The process is called by its loop: a frozen one isn't."""
        self._stream.network.call(self._stream.process, callback, *arguments)

    def pause_reading(self) -> None:
        self._stream.down.is_held = True

    def resume_reading(self) -> None:
        self._stream.down.is_held = False
        self._stream.down.go_on()

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """After what was written."""
        if self._is_closing:
            return
        self._is_closing = True
        self._close_when_sent()

    def _close_when_sent(self) -> None:
        stream = self._stream
        if stream.client_is_gone:
            return
        if stream.up.waiting and not stream.server_is_gone:
            stream.network.after(0.01, self._close_when_sent)
        else:
            self.abort()

    def abort(self) -> None:
        self._is_closing = True
        stream = self._stream
        if stream.client_is_gone:
            return
        stream.lose_client()
        self._tell_server()

    def _tell_server(self) -> None:
        stream = self._stream
        if stream.server_is_gone:
            return
        if stream.up.is_silent:  # the broker hears nothing of it
            stream.network.after(1.0, self._tell_server)
        else:
            stream.network.after(stream.network.delay(), stream.lose_server)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Network:
    """Knows servers by host, and decides by chance how long everything takes."""

    def __init__(self, loop: SimulatedLoop, chance: Random) -> None:
        self.loop = loop
        self._chance = chance
        self.servers: dict[tuple[str, int], Server] = {}
        self.streams: dict[Stream, None] = {}
        self.partitions: dict[tuple[Process, str], tuple[bool, bool]] = {}
        self.high_water = HIGH_WATER
        self.slowest = 0.01
        self.on_write: Callable[[Stream, bytes], None] = lambda stream, data: None
        self.on_connect: Callable[[Process, str], None] = lambda process, host: None

    def delay(self) -> float:
        return self._chance.random() * self.slowest

    def piece(self, size: int) -> int:
        """How much of it arrives together."""
        return size if size < 2 or self._chance.random() < 0.9 else self._chance.randrange(1, size)

    def later(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """In the world, not in the process that sends."""
        return self.loop.call_at(when, callback, context=_WORLD)

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        self.loop.call_later(seconds, callback, context=_WORLD)

    def call(self, process: Process | None, callback: Callable[..., object], *arguments: Any) -> None:
        self.loop.call_soon(callback, *arguments, context=_WORLD if process is None else process.context)

    async def reach(self, host: str, port: int) -> None:
        process = RUNNING.get()
        await asyncio.sleep(self.delay() * 2)
        while process is not None and (process, host) in self.partitions:  # noqa: ASYNC110 - as TCP does it
            await asyncio.sleep(SYN_AGAIN)
        if not self.servers[host, port].is_up or (process is not None and process.is_dead):
            raise ConnectionRefusedError(111, "Connection refused")

    def open(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        process, server, protocol = RUNNING.get(), self.servers[host, port], factory()
        stream = Stream(self, server, process, host)
        transport = stream.transport = ClientTransport(stream, protocol)
        self.streams[stream] = None
        if process is not None:
            self.on_connect(process, host)
        stream.peer = server.accept(stream)
        protocol.connection_made(transport)
        return cast("asyncio.Transport", transport), protocol

    def of(self, process: Process, host: str | None = None) -> list[Stream]:
        return [each for each in self.streams if each.process is process and host in {None, each.host}]

    @property
    def is_sound(self) -> bool:
        """Nothing is cut in two, and all that is sent arrives."""
        ends = [(each.client_is_gone or each.server_is_gone) for each in self.streams]
        return not any(ends) and not any(each.up.is_silent or each.down.is_silent for each in self.streams)

    def sever(self, process: Process) -> None:
        """The process is gone: its system closes what it had open."""
        for stream in self.of(process):
            stream.client_is_gone = True
            stream.down.end()
            stream._forget()
            stream.network.after(self.delay(), stream.lose_server)

    def partition(self, process: Process, host: str, *, up: bool, down: bool) -> None:
        """Nothing arrives any more in these directions; both False heals it."""
        if up or down:
            self.partitions[process, host] = up, down
        else:
            self.partitions.pop((process, host), None)
        for stream in self.of(process, host):
            stream.silence(up=up, down=down)


def _world_context() -> Any:
    from contextvars import Context

    return Context()


_WORLD = _world_context()
