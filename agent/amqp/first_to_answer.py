"""Tries the addresses of a host side by side, where one doesn't answer soon."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence

from agent.amqp.wire.connection import WireConnection
from agent.errors import TransientError
from agent.tasks import report_unforeseen

Opener = Callable[[str], Awaitable[WireConnection]]


async def first_to_answer(addresses: Sequence[str], opener: Opener, *, step: float, until: float) -> WireConnection:
    """The first connection that opens. Each address has until `until`, by the loop's clock, or for `step` seconds, and
    the last begins before half of that is over: of many, none may have too little for a line with long ways.

    Raises OSError; ssl.SSLError ends it for all, as they have the same certificate.
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
    told = [failures[address] for address in addresses]
    raise told[0] if len(told) == 1 else OSError("; ".join(map(str, told)))


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
