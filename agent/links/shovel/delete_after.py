"""Decides when a shovel has finished, over all of its sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agent.core.model import AckMode, DeleteAfter, ShovelSettings


@dataclass(frozen=True, slots=True)
class Former:
    """The acknowledgements of the session before, when it ended. `in_doubt` of them may have been lost with the
    connection: their messages come again, and count once."""

    acknowledged: int = 0
    in_doubt: int = 0

    def taken(self, vanished: int | None, *, comes_again: bool) -> int:
        """The number of messages that the source has let go. `vanished` is how many fewer it holds now, less what was
        published meanwhile; where that is more than could come again, too much is moved rather than something left
        behind.

        `comes_again`: messages of a lost connection are delivered again at all.
        """
        if vanished is None:
            return self.acknowledged - (self.in_doubt if comes_again else 0)
        return max(self.acknowledged - self.in_doubt, min(vanished, self.acknowledged))


NONE: Final = Former()


@dataclass
class Until:
    """The rest of `src-delete-after` and `src-delete-after-duration`. A connection that is lost changes nothing of it;
    once the shovel has finished it begins anew, for whoever restarts it."""

    remaining: int | None = None
    ends_at: float | None = None
    _ready: int | None = None

    @property
    def is_counting(self) -> bool:
        """True if a session before this one has begun to count."""
        return self.remaining is not None

    def begin(
        self, settings: ShovelSettings, *, ready: int | None, former: Former, comes_again: bool, now: float
    ) -> None:
        """Begin a session. `ready` messages are in the source queue, None if that can't be known."""
        if self.remaining is not None:
            taken = former.taken(self._vanished(ready), comes_again=comes_again)
            self.remaining = max(0, self.remaining - taken)
            if settings.delete_after is DeleteAfter.QUEUE_LENGTH and ready is not None:
                self.remaining = min(self.remaining, ready)
        elif settings.delete_after is DeleteAfter.QUEUE_LENGTH:
            self.remaining = ready or 0
        elif isinstance(settings.delete_after, int):
            self.remaining = settings.delete_after
        self._ready = ready
        if self.ends_at is None and settings.delete_after_duration is not None:
            self.ends_at = now + settings.delete_after_duration

    def _vanished(self, ready: int | None) -> int | None:
        return None if ready is None or self._ready is None else self._ready - ready

    def has_passed(self, now: float) -> bool:
        return self.remaining == 0 or (self.ends_at is not None and now >= self.ends_at)

    def begin_anew(self) -> None:
        self.remaining = self.ends_at = self._ready = None


def ack_mode(settings: ShovelSettings, *, reads_stream: bool) -> AckMode:
    """The ack mode to use. If messages are counted, those beyond the limit have to go back, which is only possible if
    they are acknowledged. A stream is read with acknowledgements only."""
    if settings.ack_mode is AckMode.NO_ACK and (reads_stream or settings.delete_after is not DeleteAfter.NEVER):
        return AckMode.ON_PUBLISH
    return settings.ack_mode
