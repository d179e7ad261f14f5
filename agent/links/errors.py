"""Errors about a link's queue: it has another consumer, or it isn't deleted."""

from __future__ import annotations

from agent.errors import AgentError, PermanentError, TransientError


class ServedElsewhereError(AgentError):
    """Another consumer has the link's queue: the native plugin, or another agent."""

    def __init__(self, message: str, queue: str) -> None:
        super().__init__(message)
        self.queue = queue


class KeptError(PermanentError):
    """Something that was to be deleted is kept for now, and may be deleted later."""


class NotEmptyError(KeptError):
    """A queue that was to be deleted only if it is empty has messages."""


class InDoubtError(TransientError):
    """It can't be known now if messages wait in a queue."""
