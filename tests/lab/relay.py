"""The proxy's process: relays connections through a network as bad as it is told on its standard input.

A command is a line `{"do": NAME, "value": VALUE}`; the answer is a line with the counters. The end of the input is the
end of the process. Needs no module of the project, so it starts fast.
"""

import argparse
import asyncio
import json
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import uvloop

READ_SIZE = 256 * 1024
THROTTLED_READ_SIZE = 8 * 1024
WRITE_BUFFER = 1024 * 1024
# How far ahead of a throttled network its sender is read, and how finely its bytes are spread, in seconds.
READ_AHEAD = 0.1
GRAIN = 0.01
# libuv's timers count milliseconds: what is due within the next half is due.
TIMER_SLACK = 0.0005
GARBAGE = bytes(each ^ 0x5A for each in range(256))
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Network:
    """What holds for all connections: delay, throttle, blackhole, garbage; and what passed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: int) -> None:
        self.loop = loop
        self.target = target
        self.delay = 0.0
        self.rate: float | None = None
        self.held = False
        self.garbled = False
        self.accepted = 0
        self.connections: set[Connection] = set()
        self.upstream = Direction()
        self.downstream = Direction()

    def counters(self) -> dict[str, int]:
        return {
            "connections": len(self.connections),
            "accepted": self.accepted,
            "bytes_up": self.upstream.passed,
            "bytes_down": self.downstream.passed,
        }

    def set_delay(self, seconds: float) -> None:
        self.delay = seconds
        self._reschedule()

    def set_rate(self, rate: float | None) -> None:
        self.rate = rate
        self._reschedule()

    def hold(self, held: bool) -> None:
        self.held = held
        for connection in list(self.connections):
            connection.wake()

    def cut(self, reset: bool) -> None:
        for connection in list(self.connections):
            connection.abort(reset=reset)

    def _reschedule(self) -> None:
        self.upstream.free_at = self.downstream.free_at = 0.0
        for connection in self.connections:
            for pipe in connection.pipes:
                pipe.reschedule()


class Direction:
    """One direction of the network: when it is free for the next byte, and how many passed."""

    def __init__(self) -> None:
        self.free_at = 0.0
        self.passed = 0


class Pipe:
    """One direction of one connection; each chunk waits for its due time, so delay costs no throughput."""

    def __init__(self, network: Network, direction: Direction, on_finished: Callable[[], None]) -> None:
        self.network = network
        self.direction = direction
        self.on_finished = on_finished
        self.source: asyncio.Transport | None = None
        self.sink: asyncio.Transport | None = None
        self.writable = True
        self.finished = False
        self._queue: deque[tuple[float, bytes]] = deque()
        self._eof = False
        self._last_due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, chunk: bytes) -> None:
        if self.network.garbled and self.direction is self.network.downstream:
            chunk = chunk.translate(GARBAGE)
        if self.network.rate is None:
            self._enqueue(chunk, self.network.loop.time())
        else:
            grain = max(1, int(self.network.rate * GRAIN))
            for start in range(0, len(chunk), grain):
                part = chunk[start : start + grain]
                self.direction.free_at = self._free_at() + len(part) / self.network.rate
                self._enqueue(part, self.direction.free_at)
        self.flush()

    def feed_eof(self) -> None:
        self._eof = True
        self.flush()

    def reschedule(self) -> None:
        """Due times were those of other settings: queue again what waits."""
        waiting = list(self._queue)
        self._queue.clear()
        self._last_due = 0.0
        for _, chunk in waiting:
            self.feed(chunk)
        self.flush()

    def flush(self) -> None:
        """Pass on what is due, and read on or not."""
        if self.sink is None or self.finished:
            return
        now = self.network.loop.time()
        while self._queue and self._may_write() and self._queue[0][0] <= now + TIMER_SLACK:
            _, chunk = self._queue.popleft()
            self.direction.passed += len(chunk)
            self.sink.write(chunk)
        if self._eof and not self._queue and not self.network.held and now + TIMER_SLACK >= self._last_due:
            self.finished = True
            self.sink.write_eof()
            self.on_finished()
        self._regulate()
        self._arm(now)

    def close(self) -> None:
        self._queue.clear()
        self.finished = True
        if self._timer:
            self._timer.cancel()

    def _enqueue(self, chunk: bytes, sent_at: float) -> None:
        self._last_due = max(self._last_due, sent_at + self.network.delay)
        self._queue.append((self._last_due, chunk))

    def _free_at(self) -> float:
        return max(self.direction.free_at, self.network.loop.time())

    def _may_write(self) -> bool:
        return self.writable and not self.network.held

    def _lags(self) -> bool:
        return self.network.rate is not None and self._free_at() > self.network.loop.time() + READ_AHEAD

    def _regulate(self) -> None:
        """The sender's window closes when the receiver's does, or the throttle's buffer is full."""
        if self.source is None or self.source.is_closing() or self._eof:
            return
        if self._may_write() and not self._lags():
            self.source.resume_reading()
        else:
            self.source.pause_reading()

    def _arm(self, now: float) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if not self._may_write() or self.finished:
            return
        if self._queue:
            self._timer = self.network.loop.call_at(self._queue[0][0], self.flush)
        elif self._eof:
            self._timer = self.network.loop.call_at(self._last_due, self.flush)
        elif self._lags():
            self._timer = self.network.loop.call_at(now + GRAIN, self.flush)


class Endpoint(asyncio.BufferedProtocol):
    """One socket: `outgoing` takes what it sends, `incoming` brings what it is sent."""

    # One buffer for all: what is read is copied out before the loop reads again.
    _buffer = memoryview(bytearray(READ_SIZE))

    def __init__(self, connection: "Connection", outgoing: Pipe, incoming: Pipe) -> None:
        self._connection = connection
        self._outgoing = outgoing
        self._incoming = incoming

    def connection_made(self, made: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", made)  # uvloop's are no subclasses
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        transport.pause_reading()
        self._outgoing.source = self._incoming.sink = transport
        self._connection.opened(self, transport)

    def get_buffer(self, _sizehint: int) -> memoryview:
        throttled = self._connection.network.rate is not None
        return self._buffer[:THROTTLED_READ_SIZE] if throttled else self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._outgoing.feed(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool:
        self._outgoing.feed_eof()
        return True

    def pause_writing(self) -> None:
        self._incoming.writable = False
        self._incoming.flush()

    def resume_writing(self) -> None:
        self._incoming.writable = True
        self._incoming.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.lost(reset=exc is not None)


class Connection:
    """A client's connection and the one to the target that belongs to it."""

    def __init__(self, network: Network) -> None:
        self.network = network
        up = Pipe(network, network.upstream, self.finished)
        down = Pipe(network, network.downstream, self.finished)
        self.pipes = (up, down)
        self.client = Endpoint(self, up, down)
        self.server = Endpoint(self, down, up)
        self._transports: list[asyncio.Transport] = []
        self._connecting: asyncio.Task[None] | None = None

    def opened(self, endpoint: Endpoint, transport: asyncio.Transport) -> None:
        self._transports.append(transport)
        if endpoint is self.client:
            self.network.connections.add(self)
            self.network.accepted += 1
        self.wake()

    def wake(self) -> None:
        """Act on what the network has become: connect on, or let bytes pass, or stop them."""
        if not self.network.held and self._connecting is None:
            self._connecting = self.network.loop.create_task(self._connect())
        if len(self._transports) > 1:
            for pipe in self.pipes:
                pipe.flush()

    def finished(self) -> None:
        """Both sides have said their last: forget them when it is written."""
        if all(pipe.finished for pipe in self.pipes):
            self.network.connections.discard(self)
            for transport in self._transports:
                transport.close()

    def lost(self, *, reset: bool) -> None:
        if reset:
            self.abort(reset=True)

    def abort(self, *, reset: bool) -> None:
        self.network.connections.discard(self)
        for pipe in self.pipes:
            pipe.close()
        if self._connecting:
            self._connecting.cancel()
        for transport in self._transports:
            if reset and not transport.is_closing():
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            transport.abort()

    async def _connect(self) -> None:
        try:
            await self.network.loop.create_connection(lambda: self.server, "127.0.0.1", self.network.target)
        except OSError:
            self.abort(reset=True)


class Listener:
    """The proxy's port, open or refusing."""

    def __init__(self, network: Network, port: int) -> None:
        self.port = port
        self._network = network
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        if self._server is None:
            loop = self._network.loop
            self._server = await loop.create_server(
                lambda: Connection(self._network).client, "127.0.0.1", self.port, reuse_address=True, backlog=1024
            )
            self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


async def obey(network: Network, listener: Listener, do: str, value: Any) -> None:
    match do:
        case "cut":
            network.cut(value)
        case "refuse":
            await listener.close()
        case "accept":
            await listener.open()
        case "delay":
            network.set_delay(value)
        case "throttle":
            network.set_rate(value)
        case "hold":
            network.hold(value)
        case "garble":
            network.garbled = value
        case "count":
            pass
        case _:
            raise ValueError(f"no such command: {do}")


async def serve(port: int, target: int) -> None:
    loop = asyncio.get_running_loop()
    network = Network(loop, target)
    listener = Listener(network, port)
    await listener.open()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    answer({"port": listener.port})
    while line := await commands.readline():
        await obey(network, listener, **json.loads(line))
        answer(network.counters())


def answer(content: dict[str, int]) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--target", type=int, required=True)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(arguments.port, arguments.target))


if __name__ == "__main__":
    main()
