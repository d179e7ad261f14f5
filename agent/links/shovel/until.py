"""When a shovel has finished, over all of its sessions."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.model import AckMode, DeleteAfter, ShovelSettings


@dataclass
class Until:
    """What is left of `src-delete-after` and `src-delete-after-duration`. A connection that is lost changes nothing of
    it; once the shovel has finished it begins anew, for whoever restarts it."""

    remaining: int | None = None
    ends_at: float | None = None
    _arrived: int = 0

    def begin(self, settings: ShovelSettings, *, ready: int, arrived: int, now: float) -> None:
        """A session begins. `ready` messages are in the source queue, and `arrived` have been forwarded so far."""
        if self.remaining is not None:
            self.remaining = max(0, self.remaining - (arrived - self._arrived))
        elif settings.delete_after is DeleteAfter.QUEUE_LENGTH:
            self.remaining = ready
        elif isinstance(settings.delete_after, int):
            self.remaining = settings.delete_after
        self._arrived = arrived
        if self.ends_at is None and settings.delete_after_duration is not None:
            self.ends_at = now + settings.delete_after_duration

    def has_passed(self, now: float) -> bool:
        return self.remaining == 0 or (self.ends_at is not None and now >= self.ends_at)

    def begin_anew(self) -> None:
        self.remaining = self.ends_at = None


def ack_mode(settings: ShovelSettings) -> AckMode:
    """Where messages are counted, those beyond have to go back, which is only possible if they are acknowledged."""
    if settings.ack_mode is AckMode.NO_ACK and settings.delete_after is not DeleteAfter.NEVER:
        return AckMode.ON_PUBLISH
    return settings.ack_mode
