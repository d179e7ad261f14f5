"""The account of a move: what became of each message, and why some are left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent.core.rules.quarantine import QuarantineReason
from agent.errors import BrokerError

USUALLY_HELD: Final = 10_000

REFUSED: Final = "refused"
UNROUTABLE: Final = "unroutable"
NOT_CHOSEN: Final = "not_chosen"
NO_DEATH: Final = "never_dead_lettered"
NO_EXCHANGE: Final = "no_exchange"
NOT_ALLOWED: Final = "exchange_not_allowed"
RETURNED: Final = str(QuarantineReason.RETURNED)
IN_DOUBT: Final = "in_doubt"
LOOKED_AT: Final = "looked_at"
REASONS: Final[Mapping[str, str]] = {
    REFUSED: "the destination refused it (basic.nack): is its queue full?",
    UNROUTABLE: "the destination has no queue for it",
    NO_EXCHANGE: "the exchange of its first death doesn't exist at the destination",
    NOT_ALLOWED: "the user of the destination may not publish to the exchange of its first death, or look for it",
    NO_DEATH: "its headers show no exchange or queue that it was in before",
    NOT_CHOSEN: "not chosen by the options",
    RETURNED: "its queue would drop it if it came back some more times",
    IN_DOUBT: "not confirmed when the move ended: it may be at both ends",
    QuarantineReason.TOO_LARGE: "larger than the destination takes",
    QuarantineReason.HEADERS_TOO_LARGE: "its headers fit into no frame of the destination",
    QuarantineReason.UNREADABLE: "its properties can't be read",
    QuarantineReason.CLOSES: "the destination closes the connection or channel over it",
}


@dataclass
class MoveAccount:
    """The result of a move: the messages that were taken have moved, or are left for a reason."""

    there: int = 0  # when it began
    moved: int = 0
    taken: int = 0
    left: Counter[str] = field(default_factory=Counter)
    waiting: int | None = None  # in the queue afterwards, None if that couldn't be asked
    counts_deliveries: bool = False  # what is left counts as delivered once more
    notes: list[str] = field(default_factory=list)  # why it ended early
    error: BrokerError | None = None
    seconds: float = 0.0
    destinations: Counter[tuple[str, str]] = field(default_factory=Counter)  # of a dry run
    first: list[dict[str, Any]] = field(default_factory=list)  # the same

    @property
    def is_complete(self) -> bool:
        """True if all that was chosen has moved."""
        return not (self.error or self.notes or self.left.keys() - {NOT_CHOSEN, LOOKED_AT})
