"""What may come between a link and its queue."""

from __future__ import annotations

from agent.errors import AgentError, PermanentError, TransientError


class ServedElsewhereError(AgentError):
    """Somebody else consumes from the link's queue: the native plugin, or another agent."""

    def __init__(self, message: str, queue: str) -> None:
        super().__init__(message)
        self.queue = queue


class KeptError(PermanentError):
    """What was to be deleted is kept for now, and may be deleted later."""


class NotEmptyError(KeptError):
    """A queue that was to be deleted only if it is empty has messages."""


class InDoubtError(TransientError):
    """What waits in a queue can't be known now."""
