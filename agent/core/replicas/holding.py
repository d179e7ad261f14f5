"""A slot that this replica holds, by its token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from agent.core.links.lifecycle import Pause
from agent.core.replicas.token import MOST_NUMBER, Token
from agent.core.status.acknowledgements import MOST_REMEMBERED, Acknowledgement

_Known = TypeVar("_Known")


@dataclass(slots=True)
class Held:
    token: Token  # the latest one, which may be on its way
    delivery: int  # of the one that arrived last, which stays unacknowledged for as long as the slot is held
    since: float
    is_leaving: bool = False
    waits_for: str | None = None  # the replica that held it before, and didn't give it up
    taken_at: float = 0.0
    _delivered: int = field(init=False)  # its number

    def __post_init__(self) -> None:
        self._delivered = self.token.number

    def take(self, delivery: int, token: Token) -> int:
        """Take another token of the slot and keep the later one; returns the delivery that isn't needed any more."""
        if token.number <= self._delivered or token.number > MOST_NUMBER:
            return delivery
        if token.number > self.token.number:
            self.token = token
        former, self.delivery, self._delivered = self.delivery, delivery, token.number
        return former

    def renew(self, now: float) -> Token:
        """The next token. Once it is delivered, the former one isn't needed any more."""
        self.since = now
        self.token = replace(self.token, number=self.token.number + 1)
        return self.token

    def pause(self, link: str, pause: Pause | None, now: float) -> Token:
        """The next token, with a link that is paused, or no longer paused."""
        self.token = replace(self.token, paused=_with(self.token.paused, link, pause))
        return self.renew(now)

    def finish(self, link: str, purpose: str | None, now: float) -> Token:
        """The next token, with a link that has done what it was defined for, or is to do it again."""
        self.token = replace(self.token, finished=_with(self.token.finished, link, purpose))
        return self.renew(now)

    def acknowledge(self, links: Mapping[str, Acknowledgement | None], now: float) -> Token | None:
        """The next token, with links whose trouble is acknowledged, or no longer acknowledged; None if nothing changes.
        Only as many as fit are remembered."""
        known = self.token.acknowledged
        for link, each in links.items():
            if each is None or link in known or len(known) < MOST_REMEMBERED:
                known = _with(known, link, each)
        if known == self.token.acknowledged:
            return None
        self.token = replace(self.token, acknowledged=known)
        return self.renew(now)

    def note_tried(self, replicas: Mapping[str, float], now: float) -> Token:
        """The next token, with the replicas that couldn't run the links."""
        self.token = replace(self.token, tried=replicas)
        return self.renew(now)


def _with(known: Mapping[str, _Known], link: str, value: _Known | None) -> dict[str, _Known]:
    others = {each: former for each, former in known.items() if each != link}
    return others if value is None else {**others, link: value}
