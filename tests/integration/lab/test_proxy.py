"""The proxy's network is as bad as ordered, and no worse."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.lab.node import Node, answers_amqp
from tests.lab.proxy import Proxy
from tests.lab.waiting import DEADLINE, eventually

MEGABYTE = 1024 * 1024


class Peer:
    """A server that echoes, or counts and swallows, in a thread."""

    def __init__(self, echo: bool) -> None:
        self._echo = echo
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self._open: list[socket.socket] = []
        self.received = 0
        self.ends = 0

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(MEGABYTE):
                    self.received += len(data)
                    if self._echo:
                        connection.sendall(data)
            except OSError:
                pass
            self.ends += 1

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join()


@contextmanager
def running(peer: Peer) -> Iterator[Peer]:
    try:
        yield peer
    finally:
        peer.close()


@pytest.fixture
def echo() -> Iterator[Peer]:
    with running(Peer(echo=True)) as peer:
        yield peer


@pytest.fixture
def sink() -> Iterator[Peer]:
    with running(Peer(echo=False)) as peer:
        yield peer


@pytest.fixture
def connect() -> Iterator[Callable[[Proxy], socket.socket]]:
    with ExitStack() as stack:
        yield lambda proxy: stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port), timeout=10))


ProxyTo = Callable[[Node | int], Proxy]
Connect = Callable[[Proxy], socket.socket]


def receive(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        data = connection.recv(count - len(received))
        if not data:
            break
        received += data
    return received


def round_trip(connection: socket.socket, message: bytes = b"hello") -> float:
    start = time.monotonic()
    connection.sendall(message)
    assert receive(connection, len(message)) == message
    return time.monotonic() - start


def seconds_to_pass(connection: socket.socket, sink: Peer, amount: int) -> float:
    before = sink.received
    chunk = bytes(MEGABYTE)
    start = time.monotonic()
    for _ in range(amount // len(chunk)):
        connection.sendall(chunk)
    eventually(lambda: sink.received - before == amount, what="all bytes arrive")
    return time.monotonic() - start


def test_bytes_arrive_in_order_and_are_counted(echo: Peer, proxy_to: ProxyTo, connect: Connect) -> None:
    proxy = proxy_to(echo.port)
    connection = connect(proxy)
    content = bytes(range(256)) * 4000
    writer = threading.Thread(target=connection.sendall, args=(content,))
    writer.start()
    assert receive(connection, len(content)) == content
    writer.join()
    assert (proxy.connections, proxy.accepted) == (1, 1)
    assert proxy.bytes_up == proxy.bytes_down == len(content)


def test_the_end_of_one_direction_leaves_the_other(echo: Peer, proxy_to: ProxyTo, connect: Connect) -> None:
    proxy = proxy_to(echo.port)
    proxy.delay(0.05)
    connection = connect(proxy)
    connection.sendall(b"last words")
    connection.shutdown(socket.SHUT_WR)
    assert receive(connection, 100) == b"last words"
    eventually(lambda: proxy.connections == 0, what="the proxy forgets the connection")


def test_delay_is_a_round_trip_of_twice_as_much(echo: Peer, proxy_to: ProxyTo, connect: Connect) -> None:
    proxy = proxy_to(echo.port)
    connection = connect(proxy)
    undelayed = min(round_trip(connection) for _ in range(10))
    proxy.delay(0.05)
    delayed = [round_trip(connection) for _ in range(5)]
    assert undelayed < 0.05
    assert 0.098 <= min(delayed) < 0.5
    proxy.delay(0)
    assert min(round_trip(connection) for _ in range(10)) < 0.05


def test_delay_leaves_throughput(sink: Peer, proxy_to: ProxyTo, connect: Connect) -> None:
    proxy = proxy_to(sink.port)
    connection = connect(proxy)
    amount = 100 * MEGABYTE
    undelayed = seconds_to_pass(connection, sink, amount)
    proxy.delay(0.05)
    delayed = min(seconds_to_pass(connection, sink, amount) for _ in range(3))
    assert delayed < max(2.0, 3 * undelayed)


def test_cut_resets_and_serves_again(echo: Peer, proxy_to: ProxyTo, connect: Connect) -> None:
    proxy = proxy_to(echo.port)
    connection = connect(proxy)
    round_trip(connection)
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        connection.recv(1)
    eventually(lambda: echo.ends == 1, what="the other side is cut too")
    round_trip(connect(proxy))
    assert proxy.accepted == 2


def test_cut_without_reset_ends_as_a_close(echo: Peer, proxy_to: ProxyTo, connect: Connect) -> None:
    proxy = proxy_to(echo.port)
    connection = connect(proxy)
    round_trip(connection)
    proxy.cut(reset=False)
    assert connection.recv(1) == b""


def test_refuse_and_accept(echo: Peer, proxy_to: ProxyTo, connect: Connect) -> None:
    proxy = proxy_to(echo.port)
    connection = connect(proxy)
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    round_trip(connection)
    proxy.accept()
    round_trip(connect(proxy))


def test_blackhole_is_silent_and_loses_nothing(echo: Peer, proxy_to: ProxyTo, connect: Connect) -> None:
    proxy = proxy_to(echo.port)
    old = connect(proxy)
    round_trip(old)
    passed = proxy.bytes_up
    proxy.blackhole()
    new = connect(proxy)
    for connection in (old, new):
        connection.sendall(b"lost?")
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(10)
    assert proxy.bytes_up == passed
    assert proxy.connections == 2
    proxy.restore()
    assert receive(old, 5) == receive(new, 5) == b"lost?"


def test_throttle_is_a_rate(sink: Peer, proxy_to: ProxyTo, connect: Connect) -> None:
    proxy = proxy_to(sink.port)
    proxy.throttle(2 * MEGABYTE)
    assert 0.85 < seconds_to_pass(connect(proxy), sink, 2 * MEGABYTE) < DEADLINE / 2
    proxy.throttle(None)
    assert seconds_to_pass(connect(proxy), sink, 40 * MEGABYTE) < 19, "twenty at that rate"


def test_throttle_is_shared(sink: Peer, proxy_to: ProxyTo, connect: Connect) -> None:
    proxy = proxy_to(sink.port)
    proxy.throttle(2 * MEGABYTE)
    others = [connect(proxy) for _ in range(2)]
    start = time.monotonic()
    writers = [threading.Thread(target=other.sendall, args=(bytes(MEGABYTE),)) for other in others]
    for writer in writers:
        writer.start()
    eventually(lambda: sink.received == 2 * MEGABYTE)
    assert 0.85 < time.monotonic() - start < DEADLINE / 2
    for writer in writers:
        writer.join()


def test_an_end_of_the_throttle_does_not_wait(echo: Peer, proxy_to: ProxyTo, connect: Connect) -> None:
    proxy = proxy_to(echo.port)
    proxy.throttle(10)
    connection = connect(proxy)
    connection.sendall(b"x" * 1000)
    eventually(lambda: echo.received, what="the first bytes pass")
    proxy.throttle(None)
    assert receive(connection, 1000) == b"x" * 1000


def test_a_receiver_that_does_not_read_stops_the_sender(proxy_to: ProxyTo, connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        proxy = proxy_to(int(deaf.getsockname()[1]))
        connection = connect(proxy)
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.sendall(bytes(200 * MEGABYTE))


def test_a_target_that_is_away_looks_like_a_reset(proxy_to: ProxyTo, connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = int(gone.getsockname()[1])
    with pytest.raises(ConnectionResetError):
        connect(proxy_to(port)).recv(1)


def test_a_broker_is_reached_through_it(broker: Node, proxy_to: ProxyTo) -> None:
    proxy = proxy_to(broker)
    assert answers_amqp(proxy.port)
    assert broker.uri("orders", port=proxy.port) == f"amqp://guest:guest@127.0.0.1:{proxy.port}/orders"
