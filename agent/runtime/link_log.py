"""The log of links: changes, reminders of links that still fail, and each cause of trouble as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import structlog

from agent.core.links.lifecycle import LinkState
from agent.core.model import Link
from agent.core.status.causes import DEGRADED, DOWN
from agent.core.text import in_full
from agent.status.board import Board
from agent.status.causes import summary

REMIND_EVERY: Final = 300.0
LOOK_EVERY: Final = 30.0
GATHER: Final = 1.0  # links that change within this time are one cause
LOGGING_CAUSES: Final = "log causes of trouble"
MOST_ALIKE: Final = 10  # links that are logged one by one where they change together
TOGETHER: Final = 30.0  # seconds
MOST_KNOWN: Final = 1_000
MOST_NAMED: Final = 10

log = structlog.get_logger()


class LinkLog:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._logged_at: dict[str, float] = {}
        self._together: dict[tuple[str, str], tuple[float, set[str]]] = {}  # links logged by status and error, since
        self._unlogged: set[str] = set()  # links whose trouble wasn't

    def changed(self, link: Link, before: LinkState, state: LinkState) -> None:
        """Log a change of a link. Repeated failures for the same reason are logged only at intervals. Of many links
        that one trouble stops or releases together, only the first few are logged: the cause is logged as a whole."""
        now = self._clock()
        if (state.status, state.error) == (before.status, before.error):
            if state.attempt > before.attempt and now - self._logged_at.get(link.id, now) >= REMIND_EVERY:
                _log_link("link still down", link, state, attempts=state.attempt)
                self._logged_at[link.id] = now
            return
        was_unlogged = link.id in self._unlogged
        self._unlogged.discard(link.id)
        if state.status in DOWN | DEGRADED and self._is_one_of_many(link, state, now):
            self._unlogged.add(link.id)
        elif state.error or not was_unlogged:
            _log_link("link changed", link, state, previous=before.status)
        self._logged_at[link.id] = now

    def _is_one_of_many(self, link: Link, state: LinkState, now: float) -> bool:
        """True if so many other links have been logged with the same trouble within the last seconds."""
        key = state.status, state.error
        since, logged = self._together.pop(key, (now, set[str]()))
        if now - since >= TOGETHER:
            since, logged = now, set()
        self._together[key] = since, logged
        if len(self._together) > MOST_KNOWN:
            del self._together[next(iter(self._together))]
        if len(logged) >= MOST_ALIKE:
            return link.id not in logged
        logged.add(link.id)
        return False

    def gone(self, link_id: str) -> None:
        self._logged_at.pop(link_id, None)
        self._unlogged.discard(link_id)


def _log_link(event: str, link: Link, state: LinkState, **more: object) -> None:
    tell = log.warning if state.error else log.info
    tell(
        event,
        link=link.id,
        kind=link.kind,
        vhost=link.vhost,
        name=link.name,
        upstream=link.upstream,
        status=state.status,
        error=state.error or None,
        **more,
    )


@dataclass(frozen=True, slots=True)
class LastingCause:
    """A cause that lasts. `links` are all that it has stopped so far."""

    side: str
    broker: str
    trouble: str
    began: float
    links: frozenset[str]

    def is_same(self, cause: Mapping[str, Any], *, by_links: bool) -> bool:
        """True if this is the same cause: with `by_links` by its links, else by its broker, whose name is its address
        until its cluster's name is known."""
        is_alike = (self.side, self.trouble) == (cause["side"], cause["trouble"])
        shares_links = not self.links.isdisjoint(cause["links"])
        return is_alike and (shares_links if by_links else self.broker == cause["broker"])


class CauseLog:
    """Logs one line when a cause begins, and one when it is over, however many links it stops."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._known: list[LastingCause] = []
        self._changed = asyncio.Event()
        board.on_transition.append(lambda *_: self._changed.set())

    async def run(self) -> None:
        """Log causes until cancelled."""
        while True:
            with suppress(TimeoutError):  # some causes come and go without a change of status
                async with asyncio.timeout(LOOK_EVERY):
                    await self._changed.wait()
            await asyncio.sleep(GATHER)
            self._changed.clear()
            self.look((await summary(self._board))["causes"])

    def look(self, causes: Iterable[Mapping[str, Any]]) -> None:
        lasting: list[LastingCause] = []
        found: list[tuple[Mapping[str, Any], LastingCause | None]] = [(cause, None) for cause in causes]
        for by_links in (True, False):  # a broker may have two causes of one kind, such as two users without permission
            for at, (cause, former) in enumerate(found):
                same = (each for each in self._known if each.is_same(cause, by_links=by_links))
                if former is None and (known := next(same, None)) is not None:
                    self._known.remove(known)
                    found[at] = cause, known
        for cause, former in found:
            known = former or _begun(cause)
            lasting.append(replace(known, broker=cause["broker"], links=known.links | {*cause["links"]}))
        for over in self._known:
            _log_cause(
                log.info, "trouble is over", over, sorted(over.links), lasted=in_full(self._board.clock() - over.began)
            )
        self._known = lasting


def _begun(cause: Mapping[str, Any]) -> LastingCause:
    began = datetime.fromisoformat(cause["since"]).timestamp()
    known = LastingCause(cause["side"], cause["broker"], cause["trouble"], began, frozenset())
    _log_cause(log.warning, "trouble begins", known, cause["links"], error=cause["error"] or None)
    return known


def _log_cause(
    tell: Callable[..., object], event: str, cause: LastingCause, links: Iterable[str], **more: object
) -> None:
    named = list(links)
    shown = {"side": cause.side, "broker": cause.broker, "trouble": cause.trouble}
    tell(event, **shown, links=len(named), some=named[:MOST_NAMED], **more)
