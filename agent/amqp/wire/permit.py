"""Until when connections may be used: for links that another replica takes over from then on."""

from __future__ import annotations

import math
from collections.abc import Callable

from agent.errors import TransientError


class Permit:
    """Checked before anything is read or written, since a process that was stopped doesn't know it. It is shared by all
    connections that it is given to."""

    __slots__ = ("on_end", "until")

    def __init__(self) -> None:
        self.until = math.inf
        self.on_end: Callable[[], None] | None = None

    def end(self) -> TransientError:
        """Called by a connection that finds that its time is up; what that connection ends with."""
        if self.on_end is not None:
            self.on_end()
        return TransientError("the agent was stopped or cut off for so long that another replica may run the link")
