"""What a link has learned of its path, kept from one session to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.core.links import prefetch
from agent.core.links.suspicion import Suspicion


@dataclass
class LearnedPath:
    prefetch: int = prefetch.START  # where the link may size it
    largest: int | None = None  # what the downstream takes of a body, from its refusal of a larger one
    largest_until: float = 0.0  # it may be configured to take more meanwhile
    largest_of: str = ""  # the address that refused it
    fruitless: int = 0  # sessions in a row that brought messages and confirmed none
    suspicion: Suspicion = field(default_factory=Suspicion)

    def largest_at(self, address: str, now: float) -> int | None:
        """What a body may have there, as far as that is known."""
        return self.largest if now < self.largest_until and address == self.largest_of else None

    def learn_largest(self, largest: int, address: str, *, until: float) -> None:
        self.largest, self.largest_of, self.largest_until = largest, address, until
