"""A source's queue, its copy at a standby and what happens between them, with numbered messages and late figures.

A history is a seed. Time goes in steps; after each, what is at the source must not have been taken from the copy.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from agent.core.standby.trim import CopyFigures, SourceFigures, StandbyTrim, TrimRule

STEP: Final = 10.0
LATE: Final = 60.0
LATE_STEPS: Final = int(LATE / STEP)
AFTER: Final = 300.0
TIMEOUT: Final = 300.0
KEEP: Final = 1500.0
RULE: Final = TrimRule(AFTER, KEEP, LATE, TIMEOUT)
STEPS: Final = 300


@dataclass(frozen=True, slots=True)
class Life:
    """What one history does, and how often: chances are for a step, or for a message."""

    most_published: int = 2
    pause: float = 0.0  # a step without a publish
    burst: int = 0  # so many steps with publishes, then as many without
    lag: int = 1  # steps at most from the source to the copy
    link_stops: float = 0.0
    duplicates: float = 0.0
    extra: float = 0.0  # a message that the copy alone gets
    slow_source: int = 0  # steps at most that the source's queue may be slower than the link's
    consumers: int = 2
    prefetch: int = 3
    work: int = 1  # steps at most until a message is settled
    holds: float = 0.0  # a message is held for as long as it may be
    returns: float = 0.0
    rejects: float = 0.0
    dies: float = 0.0  # a consumer ends, and returns all
    absent: int = 1  # steps at most until it is there again
    returns_to_end: bool = False
    ttl: int | None = None  # steps, on both sides
    expiration: float = 0.0  # a message that has one of its own
    source_purge: float = 0.0
    copy_purge: float = 0.0
    source_restart: float = 0.0
    copy_restart: float = 0.0
    look_every: int = 2
    no_answer: float = 0.0
    late: int = LATE_STEPS
    taking: int = 3  # steps at most until what was decided is done
    times_out: bool = True
    is_misled: bool = False  # the rule counts on a timeout that isn't there
    expires_by_count: bool = False


QUIET: Final = Life(late=1, taking=0)


def any_life(chance: Random) -> Life:
    """Each trouble is there in some histories, and missing in others, so that each is alone sometimes."""

    def sometimes(value: float) -> float:
        return value if chance.random() < 0.3 else 0.0

    return Life(
        most_published=chance.choice((1, 1, 2, 5)),
        pause=chance.choice((0.0, 0.3, 0.8, 0.95)),
        burst=chance.choice((0, 0, 3, 10, 30)),
        lag=chance.choice((0, 1, 6, 30)),
        link_stops=sometimes(0.02),
        duplicates=sometimes(0.1),
        extra=sometimes(0.1),
        slow_source=chance.choice((0, 0, LATE_STEPS)),
        consumers=chance.choice((1, 2, 4)),
        prefetch=chance.choice((1, 3, 20)),
        work=chance.choice((0, 1, 5)),
        holds=sometimes(0.05),
        returns=sometimes(0.1),
        rejects=sometimes(0.1),
        dies=sometimes(0.03),
        absent=chance.choice((1, 10, 60)),
        returns_to_end=chance.random() < 0.3,
        ttl=chance.choice((None, None, 20, 100, int(KEEP / STEP))),
        expiration=sometimes(0.5),
        source_purge=sometimes(0.01),
        copy_purge=sometimes(0.01),
        source_restart=sometimes(0.01),
        copy_restart=sometimes(0.01),
        look_every=chance.choice((1, 2, 5)),
        no_answer=sometimes(0.2),
        late=chance.choice((0, 2, LATE_STEPS)),
        taking=chance.choice((0, 3, 12)),
        times_out=chance.random() < 0.8,
        expires_by_count=chance.random() < 0.2,
    )


@dataclass(slots=True)
class Delivery:
    consumer: int
    since: int
    due: int


@dataclass(slots=True)
class Source:
    """The queue that is consumed. A message's times are steps."""

    life: Life
    chance: Random
    waiting: deque[int] = field(default_factory=deque)
    unacknowledged: dict[int, Delivery] = field(default_factory=dict)
    expires: dict[int, int] = field(default_factory=dict)
    were_delivered: set[int] = field(default_factory=set)
    lately: deque[tuple[int, int]] = field(default_factory=deque)  # what was acknowledged: when, what
    back_at: list[int] = field(default_factory=list)  # of each consumer
    incarnation: int = 0
    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0

    def step(self, now: int) -> None:
        if now % LATE_STEPS == 0 and self.life.times_out and self.unacknowledged:
            late = {n for n, each in self.unacknowledged.items() if now - each.since > TIMEOUT / STEP}
            for consumer in {self.unacknowledged[number].consumer for number in late}:
                self._end(consumer, now)
        for consumer, back_at in enumerate(self.back_at):
            if back_at <= now and self.chance.random() < self.life.dies:
                self._end(consumer, now)
        for _ in range(3):
            self._settle(now)
            if self.waiting:
                self._deliver(now)
        if self.chance.random() < self.life.source_purge:
            self.waiting.clear()
        if self.chance.random() < self.life.source_restart:
            self._restart(now)

    def _deliver(self, now: int) -> None:
        busy = Counter(each.consumer for each in self.unacknowledged.values())
        for consumer, back_at in enumerate(self.back_at):
            for _ in range(self.life.prefetch - busy[consumer] if back_at <= now else 0):
                self._expire(now)
                if not self.waiting:
                    return
                number = self.waiting.popleft()
                self.delivered += 1
                self.redelivered += number in self.were_delivered
                self.were_delivered.add(number)
                takes = (
                    10**6
                    if self.chance.random() < self.life.holds
                    else int(self.chance.random() * (self.life.work + 1))
                )
                self.unacknowledged[number] = Delivery(consumer, now, now + takes)
        self._expire(now)

    def _expire(self, now: int) -> None:
        while self.waiting and self.expires.get(self.waiting[0], now) < now:
            self.waiting.popleft()

    def _settle(self, now: int) -> None:
        for number in [number for number, each in self.unacknowledged.items() if each.due <= now]:
            what = self.chance.random()
            if what < self.life.returns:
                self._return([number])
                continue
            del self.unacknowledged[number]
            if what >= self.life.returns + self.life.rejects:
                self.acknowledged += 1
                self.lately.append((now, number))

    def _return(self, numbers: Iterable[int]) -> None:
        back = sorted(numbers)
        for number in back:
            del self.unacknowledged[number]
        if self.life.returns_to_end:
            self.waiting.extend(back)
        else:
            self.waiting.extendleft(reversed(back))

    def _end(self, consumer: int, now: int) -> None:
        self._return([number for number, each in self.unacknowledged.items() if each.consumer == consumer])
        self.back_at[consumer] = now + self.chance.randint(1, self.life.absent)

    def _restart(self, now: int) -> None:
        """Acknowledgements of the last seconds may be lost, and their messages are there again."""
        self._return(list(self.unacknowledged))
        while self.lately and self.lately[0][0] < now - 2 * LATE_STEPS:
            self.lately.popleft()
        self.waiting.extendleft(number for _, number in self.lately if self.chance.random() < 0.5)
        self.lately.clear()
        self.incarnation += 1
        self.delivered = self.redelivered = self.acknowledged = 0
        self.back_at = [now + self.chance.randint(0, self.life.absent) for _ in self.back_at]


@dataclass(slots=True)
class Copy:
    """The standby's queue, and who takes from it. A place is a message, and the step when it came."""

    life: Life
    chance: Random
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    held: deque[tuple[int, int]] = field(default_factory=deque)
    applied_at: deque[int] = field(default_factory=deque)  # acknowledgements that the broker hasn't applied yet
    expires: dict[int, int] = field(default_factory=dict)
    incarnation: int = 0
    entered: int = 0
    taken: int = 0
    wanted: int = 0
    wanted_at: int = 0
    held_since: int = 0

    @property
    def depth(self) -> int:
        return len(self.waiting) + len(self.held) + len(self.applied_at)

    def __contains__(self, number: int) -> bool:
        return any(number == each for each, _ in (*self.held, *self.waiting))

    def enter(self, number: int, now: int) -> None:
        self.waiting.append((number, now))
        self.entered += 1

    def step(self, now: int) -> None:
        while self.applied_at and self.applied_at[0] <= now:
            self.applied_at.popleft()
        self._expire(now)
        if self.chance.random() < self.life.copy_purge:
            self.waiting.clear()
        if self.chance.random() < self.life.copy_restart:
            self.give_back()
            self.wanted = self.entered = 0
            self.incarnation += 1
        if self.wanted and self.wanted_at <= now:
            for _ in range(self.wanted):
                self._expire(now)
                if self.waiting:
                    self.held.append(self.waiting.popleft())
            self.wanted, self.held_since = 0, now

    def give_back(self) -> None:
        self.waiting.extendleft(reversed(self.held))
        self.held.clear()

    def acknowledge(self, count: int, now: int) -> list[tuple[int, int]]:
        gone = [self.held.popleft() for _ in range(min(count, len(self.held)))]
        self.taken += len(gone)
        at = max(now + self.chance.choice((0, self.life.late)), self.applied_at[-1] if self.applied_at else 0)
        self.applied_at.extend([at] * len(gone))
        return gone

    def _expire(self, now: int) -> None:
        while self.waiting and self.expires_at(*self.waiting[0]) < now:
            self.waiting.popleft()

    def expires_at(self, number: int, came: int) -> int:
        """Brokers count from when a message came here, also where it has an expiration of its own."""
        return came + self.expires.get(number, 10**6)


class History:
    """One seed. `trim` makes the rule; `at_once`: what is delivered is acknowledged without another look."""

    def __init__(
        self, life: Life, chance: Random, trim: Callable[[TrimRule, float], StandbyTrim], *, at_once: bool = False
    ) -> None:
        self.life, self._chance, self._at_once = life, chance, at_once
        self.source, self.copy = Source(life, chance), Copy(life, chance)
        self.source.back_at = [0] * life.consumers
        self._trim = trim(RULE if life.times_out or life.is_misled else replace(RULE, timeout=None), 0.0)
        self._entering: list[tuple[int, int]] = []  # the source's queue: when, what
        self._link: deque[tuple[int, int]] = deque()
        self._link_runs_at = 0
        self._number = 0
        self._trimmed: set[int] = set()
        self._shown: dict[str, int] = {}
        self._ages: dict[str, float | None] = {}  # of a figure in this history: none, the highest, or any
        self._past: list[tuple[object, ...]] = []
        self.depths: list[int] = []
        self.doubts: set[str | None] = set()

    def run(self, steps: int = STEPS) -> bool:
        """True if a message was taken that the source has."""
        for now in range(1, steps + 1):
            self._publish(now)
            self.source.step(now)
            self._forward(now)
            self.copy.step(now)
            self._remember()
            if now % self.life.look_every == 0:
                self._look(now)
            self.depths.append(self.copy.depth)
            missed = self._trimmed.intersection(self.source.waiting) | (
                self._trimmed & self.source.unacknowledged.keys()
            )
            if any(number not in self.copy for number in missed):
                return True
        return False

    def _publish(self, now: int) -> None:
        life, chance = self.life, self._chance
        rests = chance.random() < life.pause or (life.burst and now // life.burst % 2)
        for _ in range(0 if rests else chance.randint(1, life.most_published)):
            self._number += 1
            if chance.random() < life.expiration:
                self.copy.expires[self._number] = chance.choice((3, 30))
            elif life.ttl is not None:
                self.copy.expires[self._number] = life.ttl
            self._entering.append((now + chance.randint(0, life.slow_source), self._number))
            self._link.append((now + chance.randint(0, life.lag), self._number))
        for _, number in (each for each in self._entering if each[0] <= now):
            self.source.waiting.append(number)
            if number in self.copy.expires and self.copy.expires[number] < KEEP / STEP:
                self.source.expires[number] = now + self.copy.expires[number]
        self._entering = [each for each in self._entering if each[0] > now]

    def _forward(self, now: int) -> None:
        life, chance = self.life, self._chance
        if chance.random() < life.link_stops:
            self._link_runs_at = now + chance.choice((3, 30, 100))
        while self._link and self._link[0][0] <= now and self._link_runs_at <= now:
            number = self._link.popleft()[1]
            self.copy.enter(number, now)
            if chance.random() < life.duplicates:
                self.copy.enter(number, now)
        if chance.random() < life.extra:
            self.copy.enter(-now, now)

    def _remember(self) -> None:
        source, copy = self.source, self.copy
        held = len(source.unacknowledged)
        depth = (len(source.waiting) + held, held)
        counts = (source.delivered, source.redelivered, source.acknowledged)
        self._past.append((depth, *counts, source.incarnation, copy.depth, copy.entered, copy.incarnation))

    def _late(self, which: int, name: str) -> object:
        """Each figure is of a moment of its own, and never becomes older."""
        latest = len(self._past) - 1
        share = self._ages.setdefault(name, self._chance.choice((0.0, 1.0, None)))
        age = int((self._chance.random() if share is None else share) * (self.life.late + 0.999))
        at = max(self._shown.get(name, 0), latest - age)
        self._shown[name] = at
        return self._past[at][which]

    def _number_of(self, which: int, name: str) -> int:
        value = self._late(which, name)
        assert isinstance(value, int)
        return value

    def _look(self, now: int) -> None:
        depth = self._late(0, "depth")
        assert isinstance(depth, tuple)
        delivered, redelivered, acknowledged = (self._number_of(i, str(i)) for i in (1, 2, 3))
        incarnation = str(self._number_of(4, "incarnation"))
        messages, entered = self._number_of(5, "messages"), self._number_of(6, "entered")
        source = SourceFigures(incarnation, depth[0], delivered, redelivered, acknowledged)
        copy = CopyFigures(str(self._number_of(7, "copy")), messages, entered)
        found = self._trim.look(
            now * STEP,
            None if self._chance.random() < self.life.no_answer else source,
            None if self._chance.random() < self.life.no_answer else copy,
            taken=self.copy.taken,
            held=depth[1],
        )
        self.doubts.add(found.doubt)
        allowed = found.messages
        if self.life.expires_by_count:
            allowed = max(allowed, self._trim.expired(now * STEP))
        self._take(now, allowed, found.known_at)

    def _take(self, now: int, allowed: int, known_at: float) -> None:
        copy = self.copy
        if copy.held and (self._at_once or known_at >= copy.held_since * STEP):
            count = len(copy.held) if self._at_once else allowed
            for number, came in copy.acknowledge(count, now):
                if not (self.life.expires_by_count and (now - came) * STEP > KEEP):
                    self._trimmed.add(number)
            copy.give_back()
        elif not copy.held and not copy.wanted and allowed:
            copy.wanted, copy.wanted_at = allowed, now + self._chance.randint(0, self.life.taking)
