"""Programs that consume from queues beside the agents, and what they have taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from agent.core.fields import long
from tests.simulation.broker import events
from tests.simulation.broker.broker import Broker
from tests.simulation.broker.queues import DELETED, GONE_UNTOLD, Consumer, Message, Queue
from tests.simulation.scenario import JOBS, Scenario


class User:
    """One program. It takes its time for each message, and acknowledges it then."""

    process = None

    def __init__(
        self,
        name: str,
        broker: Broker,
        chance: Random,
        *,
        on_taken: Callable[[bytes], None],
        prefetch: int = 0,
        slowest: float = 0.0,
        priority: int = 0,
    ) -> None:
        self.is_wanted = False
        self.pid = ""
        self._name = name
        self._broker = broker
        self._chance = chance
        self._on_taken = on_taken
        self._prefetch = prefetch
        self._slowest = slowest
        self._priority = priority
        self._due = 0.0
        self._consumer: Consumer | None = None
        self._held: dict[Message, None] = {}

    def come(self) -> None:
        self.is_wanted = True
        queue = self._broker.queues.get(JOBS)
        if self.is_there or queue is None or not self._broker.is_up:
            return
        arguments = (("x-priority", long(self._priority)),) if self._priority else ()
        self._held.clear()
        self.pid = self._broker.made_up_name()
        consumer = self._consumer = Consumer(
            self, queue, self._name, no_ack=False, exclusive=False, prefetch=self._prefetch, arguments=arguments
        )
        queue.consume(consumer)

    @property
    def is_there(self) -> bool:
        return self._consumer is not None and self._consumer in self._consumer.queue.consumers

    def leave(self, *, finishes: bool = False, is_cut: bool = False) -> None:
        """What it has is done with, or goes back. `is_cut`: its channel ends, of which newer brokers tell alone."""
        self.is_wanted = False
        consumer = self._consumer
        if consumer is None or not self.is_there:
            return
        if finishes:
            for message in tuple(self._held):
                self._finish(consumer, message)
        self._consumer = None
        is_untold = is_cut and not self._broker.tells_of_each_consumer
        consumer.queue.leave(consumer, GONE_UNTOLD if is_untold else DELETED)
        if is_untold:
            self._broker.tell(lambda: events.channel_closed(self.pid, 1))
        held, self._held = self._held, {}
        consumer.queue.give_back(list(held))

    def has(self, body: bytes) -> bool:
        return any(message.body == body for message in self._held)

    def deliver(self, consumer: Consumer, message: Message) -> None:
        self._held[message] = None
        self._due = max(self._due, self._broker.now) + self._chance.random() * self._slowest
        self._broker.network.later(self._due, lambda: self._finish(consumer, message))

    def _finish(self, consumer: Consumer, message: Message) -> None:
        if consumer is not self._consumer or not self.is_there or message not in self._held:
            return
        del self._held[message]
        self._on_taken(message.body)
        consumer.unacked -= 1
        consumer.queue.settle(message)
        consumer.queue.pump()

    def cancel(self, consumer: Consumer) -> None:
        """The queue is gone."""
        self._consumer = None
        self._held.clear()


@dataclass
class Jobs:
    """The queues of a queue link at both ends, and everybody who consumes from them."""

    up: Broker
    down: Broker
    scenario: Scenario
    chance: Random
    arrived: list[bytes] = field(default_factory=list)
    """In the downstream's queue, in this order."""
    taken: set[bytes] = field(default_factory=set)
    taken_upstream: set[bytes] = field(default_factory=set)
    deleted: set[bytes] = field(default_factory=set)
    local: User = field(init=False)
    rival: User = field(init=False)
    """Consumes upstream, so it goes first."""
    other_link: User = field(init=False)
    """Consumes downstream, as a link of another cluster does that serves its own consumers."""

    def __post_init__(self) -> None:
        scenario, down = self.scenario, self.down
        self.local = User(
            "local",
            down,
            self.chance,
            on_taken=self.taken.add,
            prefetch=scenario.user_prefetch,
            slowest=scenario.slowest_user,
        )
        self.rival = User("rival", self.up, self.chance, on_taken=self.taken_upstream.add, slowest=0.1)
        self.other_link = User(
            "federation-link-other", down, self.chance, on_taken=self.taken.add, prefetch=10, slowest=0.1, priority=-1
        )
        down.on_published = self._published
        for broker in (self.up, self.down):
            broker.on_started = self._come_again

    def _published(self, session: Any, message: Message, names: list[str]) -> None:
        if JOBS in names:
            self.arrived.append(message.body)

    def _come_again(self) -> None:
        """After what ended their consumers."""
        for user in (self.local, self.rival, self.other_link):
            if user.is_wanted:
                user.come()

    def accounted(self) -> set[bytes]:
        """What isn't lost: somebody has it, or had it, or it waits for them."""
        queue = self.down.queues.get(JOBS)
        waiting = () if queue is None else (*queue.ready, *queue.unacked)
        return self.taken | self.taken_upstream | self.deleted | {message.body for message in waiting}

    def delete(self) -> None:
        """Somebody deletes the downstream's queue with all that is in it."""
        queue = self.down.queues.get(JOBS)
        if queue is not None:
            self.deleted |= {message.body for message in (*queue.ready, *queue.unacked)}
            self.down.delete_queue(queue)

    def declare(self) -> None:
        if JOBS not in self.down.queues:
            self.down.make_queue(Queue(JOBS, durable=True))
        self._come_again()
