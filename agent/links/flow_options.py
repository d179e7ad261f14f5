"""The options of a flow, as a kind of link sets them, and what a flow learns of its path for the next one."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.amqp.data.rewriting import Destination
from agent.core.fields import EMPTY, Table
from agent.core.links import read_limits
from agent.core.links.confirms import StreamOffsets
from agent.core.links.poison_search import PoisonSearch
from agent.core.links.read_limits import RateLimit, TokenBuckets
from agent.core.model import AckMode


@dataclass(frozen=True, slots=True)
class FlowOptions:
    """The options of one flow. `tag` names the first consumer; those that follow it get a number. `prefetch` None is
    sized to the path.

    `is_quorum`: the queue counts what comes back to it. `limit` is the number of messages to forward before the flow
    has finished; what comes beyond goes back. `quarantine_after` is the number of seconds for which a message may be
    refused while others get through; None: for ever. `ends_on_return`: a message that no queue takes breaks the flow
    and isn't acknowledged: the destination is a queue, and that is gone. `offsets` are noted where the queue is a
    stream: it takes nothing back, and `arguments` say where its only consumer begins. `keeps_consumer`: no other
    prefetch is worth another consumer, as the queue goes with its last one. With a `rate_limit` the flow holds the
    connection that it reads from, so no other may read from it. `keeps_back`: what
    doesn't get through stays unacknowledged until the flow ends, counts for the limit, and is never tried again.
    `opens_first`: nothing is taken before the destination has given a channel to publish on.
    """

    queue: str
    tag: str
    destination: Destination
    arguments: Table = EMPTY
    exclusive: bool = False
    ack_mode: AckMode = AckMode.ON_CONFIRM
    prefetch: int | None = None
    is_quorum: bool = False
    limit: int | None = None
    quarantine_after: float | None = None
    ends_on_return: bool = False
    offsets: StreamOffsets | None = None
    keeps_consumer: bool = False
    set_headers: Table = EMPTY
    remove_headers: tuple[str, ...] = ()
    rate_limit: RateLimit | None = None
    keeps_back: bool = False
    opens_first: bool = False

    def __post_init__(self) -> None:
        if self.limit is not None and (self.limit < 1 or not self.acknowledges):
            raise ValueError("a limit is at least 1, and needs messages that can go back, so that are acknowledged")

    @property
    def is_stream(self) -> bool:
        return self.offsets is not None

    @property
    def acknowledges(self) -> bool:
        return self.ack_mode is not AckMode.NO_ACK


@dataclass(slots=True)
class PathMemory:
    most_kept: int = (
        read_limits.LARGEST_PREFETCH
    )  # messages of a stream at a time: of more, not all refused ones could be kept
    prefetch: int = read_limits.START_PREFETCH  # where the link may size it
    largest: int | None = None  # what the downstream takes of a body, from its refusal of a larger one
    largest_until: float = 0.0  # it may be configured to take more meanwhile
    largest_of: str = ""  # the address that refused it
    average_size: float | None = None  # bytes of a body, as they came last
    fruitless: int = 0  # sessions in a row that brought messages and confirmed none
    poison_search: PoisonSearch = field(default_factory=PoisonSearch)
    buckets: TokenBuckets | None = None  # of its rate limit, if it has one

    def largest_at(self, address: str, now: float) -> int | None:
        """The largest body that this address accepts, as far as that is known."""
        return self.largest if now < self.largest_until and address == self.largest_of else None

    def learn_largest(self, largest: int, address: str, *, until: float) -> None:
        self.largest, self.largest_of, self.largest_until = largest, address, until
