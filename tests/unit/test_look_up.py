"""A name that isn't resolved keeps nobody else waiting."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from agent import look_up
from agent.look_up import MOST, Resolver, addresses_of


class Hanging(look_up._LookUp):
    """Of a name whose DNS servers don't answer until `end`."""

    def __init__(self, host: str, end: threading.Event) -> None:
        super().__init__(host)
        self._end = end

    def run(self) -> None:
        self._end.wait()
        self.done.set_result(("192.0.2.1",))


@pytest.fixture
def end() -> Iterator[threading.Event]:
    found = threading.Event()
    yield found
    found.set()
    for each in threading.enumerate():
        if isinstance(each, look_up._LookUp):
            each.join(10)


async def test_addresses_are_not_looked_up() -> None:
    assert await addresses_of("192.0.2.7") == ("192.0.2.7",)
    assert await addresses_of("fe80::1%eth0") == ("fe80::1%eth0",)


async def test_a_name() -> None:
    assert "127.0.0.1" in await addresses_of("localhost")
    [found, *_] = await Resolver().resolve("localhost", 15672, socket.AF_INET)
    assert (found["host"], found["port"], found["hostname"]) == ("127.0.0.1", 15672, "localhost")


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a" * 70])
async def test_no_name(name: str) -> None:
    with pytest.raises(OSError):  # noqa: PT011 - its text is the system's
        await addresses_of(name)


async def test_one_that_hangs_is_looked_up_once_and_others_are_found(end: threading.Event) -> None:
    Hanging("hangs.example", end).start()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await addresses_of("hangs.example")
    assert [each.daemon for each in threading.enumerate() if each.name == "look up hangs.example"] == [True]
    assert await addresses_of("localhost")
    end.set()
    assert await addresses_of("hangs.example")


async def test_they_are_few(end: threading.Event) -> None:
    for number in range(MOST):
        Hanging(f"{number}.example", end).start()
    with pytest.raises(socket.gaierror, match=f"{MOST} other names"):
        await addresses_of("one-more.example")
    assert await addresses_of("192.0.2.7") == ("192.0.2.7",)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (("192.0.2.1", 0), "192.0.2.1"),
        (("2001:db8::1", 0, 0, 0), "2001:db8::1"),
        (("fe80::1", 0, 0, 2), "fe80::1%2"),
        (("fe80::1%eth0", 0, 0, 2), "fe80::1%eth0"),
    ],
)
async def test_the_interface_of_an_address_is_kept(
    monkeypatch: pytest.MonkeyPatch, found: tuple[object, ...], text: str
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", found)])
    assert await addresses_of("a.example") == (text,)


async def test_without_a_thread_it_is_an_error_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(look_up._LookUp, "start", refuse)
    with pytest.raises(socket.gaierror, match="gives no thread"):
        await addresses_of("a.example")
