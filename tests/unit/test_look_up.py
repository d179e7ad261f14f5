"""A name that isn't resolved keeps nobody else waiting."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from agent.look_up import MOST, Resolver, addresses_of


class Servers:
    """DNS servers that don't answer until `end`."""

    def __init__(self) -> None:
        self.end = threading.Event()
        self.asked: list[str] = []

    def __call__(self, host: str) -> list[tuple[object, ...]]:
        self.asked.append(host)
        self.end.wait()
        return [("192.0.2.1", 0)]


@pytest.fixture
def hanging() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.end.set()
    for each in threading.enumerate():
        if each.name.startswith("look up "):
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


async def test_one_that_hangs_is_looked_up_once_and_others_are_found(hanging: Servers) -> None:
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await addresses_of("hangs.example", ask=hanging)
    assert [each.daemon for each in threading.enumerate() if each.name == "look up hangs.example"] == [True]
    assert await addresses_of("localhost")
    hanging.end.set()
    assert await addresses_of("hangs.example", ask=hanging) == ("192.0.2.1",)
    assert hanging.asked == ["hangs.example"]


async def test_they_are_few(hanging: Servers) -> None:
    asking = [asyncio.create_task(addresses_of(f"{number}.example", ask=hanging)) for number in range(MOST)]
    await asyncio.sleep(0)
    with pytest.raises(socket.gaierror, match=f"{MOST} other names"):
        await addresses_of("one-more.example", ask=hanging)
    assert await addresses_of("192.0.2.7") == ("192.0.2.7",)
    hanging.end.set()
    assert {*await asyncio.gather(*asking)} == {("192.0.2.1",)}


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (("192.0.2.1", 0), "192.0.2.1"),
        (("2001:db8::1", 0, 0, 0), "2001:db8::1"),
        (("fe80::1", 0, 0, 2), "fe80::1%2"),
        (("fe80::1%eth0", 0, 0, 2), "fe80::1%eth0"),
    ],
)
async def test_the_interface_of_an_address_is_kept(found: tuple[object, ...], text: str) -> None:
    assert await addresses_of("a.example", ask=lambda _: [found, found]) == (text,)


async def test_without_a_thread_it_is_an_error_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)  # nothing else makes the system refuse just this one
    with pytest.raises(socket.gaierror, match="gives no thread"):
        await addresses_of("a.example")
