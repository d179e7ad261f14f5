"""What may come between a link and its queue."""

from __future__ import annotations

from agent.errors import AgentError, PermanentError


class ServedElsewhereError(AgentError):
    """Somebody else consumes from the link's queue: the native plugin, or another agent."""

    def __init__(self, message: str, queue: str) -> None:
        super().__init__(message)
        self.queue = queue


class NotEmptyError(PermanentError):
    """Messages have come into a queue that was to be removed empty."""
