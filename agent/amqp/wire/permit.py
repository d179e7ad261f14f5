"""A deadline for the use of connections, for links that another replica takes over from then on."""

from __future__ import annotations

import math
from collections.abc import Callable

from agent.amqp.wire.ends import StoodStillError
from agent.errors import BrokerError


class Permit:
    """Allows the use of connections until a time. It is checked before anything is read or written, since a process
    that was stopped doesn't know it. All connections that it is given to share it."""

    __slots__ = ("on_end", "until")

    def __init__(self) -> None:
        self.until = math.inf
        self.on_end: Callable[[], BrokerError] | None = None

    def end(self) -> BrokerError:
        """Return the error to end with; called by a connection that finds that its time is up."""
        return StoodStillError() if self.on_end is None else self.on_end()
