"""Looks up the names of hosts: one whose DNS servers don't answer delays no other.

The threads that an event loop has for this are few, and all its connections share them.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from ipaddress import ip_address
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

MOST: Final = 128  # names at the same time

Ask = Callable[[str], Iterable[Sequence[object]]]


def ask_the_system(host: str) -> Iterable[Sequence[object]]:
    """The addresses of a host as `socket` writes them; takes as long as its DNS servers."""
    return [address for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


async def addresses_of(host: str, *, ask: Ask = ask_the_system) -> tuple[str, ...]:
    """The addresses of a host, as numbers; raises OSError. Who asks for a name that is being looked up waits for
    the same answer, with a deadline of their own.
    """
    if _is_address(host):
        return (host,)
    return await asyncio.wrap_future(_looking_for(host, ask).done)


class Resolver(AbstractResolver):
    """For aiohttp."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = [(each, socket.AF_INET6 if ":" in each else socket.AF_INET) for each in await addresses_of(host)]
        return [
            ResolveResult(
                hostname=host, host=address, port=port, family=of, proto=socket.IPPROTO_TCP, flags=socket.AI_NUMERICHOST
            )
            for address, of in found
            if family in {socket.AF_UNSPEC, of}
        ]

    async def close(self) -> None:
        """Nothing is kept."""


class _LookUp(threading.Thread):
    """A daemon: the end of the process doesn't wait for it."""

    def __init__(self, host: str, ask: Ask) -> None:
        super().__init__(name=f"look up {host}", daemon=True)
        self.host = host
        self._ask = ask
        self.done: Future[tuple[str, ...]] = Future()
        self.done.set_running_or_notify_cancel()  # others may wait for it, so it can't be cancelled

    def run(self) -> None:
        try:
            found = [_text(address) for address in self._ask(self.host)]
        except (OSError, UnicodeError) as error:
            self.done.set_exception(error if isinstance(error, OSError) else OSError(f"no name of a host: {error}"))
        else:
            self.done.set_result(tuple(dict.fromkeys(found)))


def _looking_for(host: str, ask: Ask) -> _LookUp:
    running = [each for each in threading.enumerate() if isinstance(each, _LookUp) and not each.done.done()]
    same = next((each for each in running if each.host == host), None)
    if same is not None:
        return same
    if len(running) >= MOST:
        raise socket.gaierror(socket.EAI_AGAIN, f"the DNS servers have yet to answer for {MOST} other names")
    begun = _LookUp(host, ask)
    try:
        begun.start()
    except RuntimeError as error:
        raise socket.gaierror(socket.EAI_MEMORY, f"the system gives no thread to look up a name: {error}") from error
    return begun


def _text(address: Sequence[object]) -> str:
    """An address of one network interface is of no use without its number: `fe80::1%2`."""
    host, scope = str(address[0]), address[3] if len(address) > 3 else 0
    return f"{host}%{scope}" if scope and "%" not in host else host


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
