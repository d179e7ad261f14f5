"""What is logged of links: every change, and from time to time that a link still fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from agent.core.links.lifecycle import LinkState
from agent.core.model import Link

REMIND_EVERY: Final = 300.0

log = structlog.get_logger()


class LinkLog:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told_at: dict[str, float] = {}

    def changed(self, link: Link, before: LinkState, state: LinkState) -> None:
        """Repeated failures for the same reason are logged only from time to time."""
        now = self._clock()
        if (state.status, state.error) != (before.status, before.error):
            _tell("link changed", link, state, previous=before.status)
        elif state.attempt > before.attempt and now - self._told_at.get(link.id, now) >= REMIND_EVERY:
            _tell("link still down", link, state, attempts=state.attempt)
        else:
            return
        self._told_at[link.id] = now

    def gone(self, link_id: str) -> None:
        self._told_at.pop(link_id, None)


def _tell(event: str, link: Link, state: LinkState, **more: object) -> None:
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
