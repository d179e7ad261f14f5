"""Signals to commands that have something to tidy up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import typer

T = TypeVar("T")
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def on_first_signal(stop: Callable[[], object]) -> None:
    """The first one calls `stop`, a second one ends the process. A terminal that closes is one, too, but not where
    that is to be ignored (`nohup`)."""
    loop = asyncio.get_running_loop()
    handled = [each for each in _ENDING if signal.getsignal(each) is not signal.SIG_IGN]

    def first() -> None:
        for each in handled:
            loop.remove_signal_handler(each)
        stop()

    for each in handled:
        loop.add_signal_handler(each, first)


def until_signal(work: Coroutine[Any, Any, T], stopped: int) -> T:
    """The first signal cancels it, waits until it has tidied up, and exits with `stopped`."""

    async def run() -> T:
        if (task := asyncio.current_task()) is not None:
            on_first_signal(task.cancel)
        return await work

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise typer.Exit(stopped) from None
