"""The format of the log: one event per line, for programs or for people. Nothing else configures logging.

Why: docs/decisions/0058-one-log-setup.md
"""

from __future__ import annotations

import io
import logging
import math
import os
import time
from collections.abc import Callable, Hashable
from hashlib import blake2b
from typing import Final, TextIO

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from agent.core.settings import LogFormat, LogSettings
from agent.core.text import printable

FEW: Final = 10
PERIOD: Final = 300.0
MOST: Final = 10_000


def configure_logging(settings: LogSettings, stream: TextIO) -> None:
    """Everything goes to `stream`, including what libraries log with `logging`."""
    before: list[Processor] = [structlog.stdlib.add_log_level, structlog.processors.TimeStamper(fmt="iso", utc=True)]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            RepeatsDropped(time.monotonic),
            *before,
            ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=before,
            processors=[ProcessorFormatter.remove_processors_meta, *_rendering(settings.format, stream)],
        )
    )
    logging.raiseExceptions = False  # a log that can't be written must not cause another error
    logging.basicConfig(handlers=[handler], level=settings.level.upper(), force=True)


def _rendering(wanted: LogFormat, stream: TextIO) -> list[Processor]:
    """Tracebacks omit the values of variables: some are secrets."""
    if wanted is LogFormat.CONSOLE or (wanted is LogFormat.AUTO and stream.isatty()):
        colours = stream.isatty() and "NO_COLOR" not in os.environ
        return [_visible, structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=_traceback)]
    exceptions = structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
    return [exceptions, _in_order, structlog.processors.JSONRenderer()]


def _visible(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Shows control characters in names and texts of brokers as escapes; JSON escapes them anyway."""
    return {printable(key): printable(value) if isinstance(value, str) else value for key, value in event.items()}


def _traceback(stream: TextIO, failure: ExcInfo) -> None:
    written = io.StringIO()
    structlog.dev.plain_traceback(written, failure)
    stream.write(printable(written.getvalue(), keep="\n"))


def _in_order(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {"timestamp": event.pop("timestamp"), "level": event.pop("level"), "event": event.pop("event"), **event}


class Repeats:
    """A record is logged a few times, and then at intervals, with the number since it was last logged. One that didn't
    occur for that long counts as new.
    """

    def __init__(self, *, few: int, period: float, most: int) -> None:
        self._few = few
        self._period = period
        self._most = most
        self._records: dict[Hashable, tuple[float, int]] = {}  # since when, and how often

    def count(self, what: Hashable, now: float) -> int | None:
        """The number of suppressed repeats if it is to be logged now; None otherwise."""
        since, times = self._records.get(what, (-math.inf, 0))
        if now - since < self._period:
            self._records[what] = since, times + 1
            return 0 if times < self._few else None
        suppressed = max(0, times - self._few)
        self._records.pop(what, None)
        self._records[what] = now, self._few if suppressed else 1
        if len(self._records) > self._most:  # the oldest is dropped: memory must not grow with what a peer sends
            del self._records[next(iter(self._records))]
        return suppressed


class RepeatsDropped:
    """Drops repeated records, and logs their number as `repeated` every few minutes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._repeats = Repeats(few=FEW, period=PERIOD, most=MOST)

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        suppressed = self._repeats.count(_fingerprint(event), self._clock())
        if suppressed is None:
            raise structlog.DropEvent
        return {**event, "repeated": suppressed} if suppressed else event


def _fingerprint(event: EventDict) -> bytes:
    """A few bytes that identify a record, as thousands are remembered. Endpoints are tried in random order, so their
    errors count as the same in any order."""
    parts = sorted((key, sorted(set(str(value).split("; ")))) for key, value in event.items())
    return blake2b(repr(parts).encode(errors="surrogatepass"), digest_size=16).digest()
