"""A synthetic fleet and what really happened to it: lines as agents would write them, and the truth beside them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.pipeline.lines import instant, line, write

SECOND = 1_000_000
INTERVAL = 10 * SECOND
CAUSES = ("backoff", "blocked", "paused", "invalid", "stalled")
FILES = 10
COMPARED = ("looks", "entered", "acknowledged", "growth", "settled", "settled_again", "waiting")
COUNTED = {"schema": 3, "taken": 0, "given_back": 0, "unsettled": 0} | dict.fromkeys(COMPARED, 0)
PLANTED = ("nothing", "expired", "uncounted", "repeated", "too much", "too little")
"""What is wrong upstream, by the last digit of a link's number."""
PAUSED = "paused"

Span = tuple[int, int, str]
Life = tuple[int, int]


HOUR = 3600 * SECOND


@dataclass
class Account:
    """What became of one link's messages in an hour; `lost` is what nothing explains."""

    taken: int = 0
    forwarded: int = 0
    given_back: int = 0
    before: int = 0
    after: int = 0
    lost: int = 0


@dataclass
class Upstream:
    """What became of the messages in one link's queue, as far as it was compared in an hour."""

    entered: int = 0
    acknowledged: int = 0
    expired: int = 0
    uncounted: int = 0
    repeated: int = 0
    before: int = 0
    after: int = 0
    unexplained: int = 0


@dataclass
class Truth:
    """By link: its spans of one status, in microseconds, and how many messages were seen to pass."""

    spans: dict[str, list[Span]] = field(default_factory=dict)
    messages: dict[str, int] = field(default_factory=dict)
    account: dict[tuple[str, int], Account] = field(default_factory=dict)
    """By link and hour, both from 0 on."""
    critical: dict[str, int | None] = field(default_factory=dict)
    """By link, for how long its lag was critical while messages should have flowed; None where that is unknown."""
    upstream: dict[tuple[str, int], Upstream] = field(default_factory=dict)
    lines: int = 0
    bad: int = 0


@dataclass(frozen=True)
class Fleet:
    """`agents` of `each` links, watched for `steps` sample intervals; each agent dies once and comes back."""

    seed: int
    agents: int
    each: int
    steps: int

    @property
    def end(self) -> int:
        return self.steps * INTERVAL

    def write(self, directory: Path) -> Truth:
        chance, truth = random.Random(self.seed), Truth()
        for number in range(self.agents):
            agent = f"agent-{number}"
            died = chance.randrange(self.steps // 4, self.steps // 2)
            back = died + chance.randrange(10, self.steps // 4)
            lives = [(0, died), (back, self.steps - 1)]
            lines = [*_own_lines(agent, lives)]
            for link in range(self.each):
                lines += self._of_link(agent, f"{agent}-{link}", lives, chance, truth)
            _write_spoilt(lines, directory, chance, truth)
        return truth

    def _of_link(self, agent: str, link: str, lives: list[Life], chance: random.Random, truth: Truth) -> Iterator[str]:
        """From the first line of a life to its last one the status is known; at the end of it all, until then."""
        offset = chance.randrange(1, INTERVAL // 2)
        spans: list[Span] = []
        truth.messages[link] = known_until = 0
        books, lag, number = Books(link, truth), Lag.of(link), int(link.rpartition("-")[2])
        for first, last in lives:
            told = [*_told(first, last, offset, chance)]
            begin, until = told[0][0], self.end if last == self.steps - 1 else told[-1][0]
            starts = [(at, status) for at, kind, status in told if kind == "transition"]
            ends = [*(at for at, _ in starts[1:]), until]
            spans.append((known_until, begin, "unknown"))
            spans += [(at, end, status) for (at, status), end in zip(starts, ends, strict=True)]
            counted, queue = Account(given_back=0), Queue(link, PLANTED[number % len(PLANTED)], truth)
            died_with = books.now
            held = zip(told, [*(at for at, *_ in told[1:]), until], strict=True)
            for ((at, kind, status), end), text in zip(held, _texts(agent, link, told), strict=True):
                hour = books.at(at)
                hour.given_back, died_with = hour.given_back + died_with, 0
                if at == told[0][0]:
                    books.now = hour.after = 0
                if kind == "sample" and status == "running":
                    books.move(hour, counted, chance)
                    queue.move(at, chance)
                yield lag.told(_counting(text, counted, books.now, queue.told), status, end - at)
            truth.messages[link] += counted.forwarded
            known_until = until
        truth.spans[link], truth.critical[link] = spans, lag.critical


@dataclass
class Books:
    """Of one link; `now` is what is in flight."""

    link: str
    truth: Truth
    now: int = 0

    def at(self, moment: int) -> Account:
        key = (self.link, (moment - 1) // HOUR)
        return self.truth.account.setdefault(key, Account(before=self.now, after=self.now))

    def move(self, hour: Account, counted: Account, chance: random.Random) -> None:
        taken = chance.randrange(100)
        there = self.now + taken
        back = min(there, chance.choice((0, 0, 0, chance.randrange(5))))
        lost = min(there - back, 1 if chance.random() < 0.001 else 0)
        self.now = hour.after = min(there - back - lost, chance.randrange(20))
        forwarded = there - back - lost - self.now
        for each in (hour, counted):
            each.taken += taken
            each.forwarded += forwarded
            each.given_back += back
            each.lost += lost


@dataclass
class Lag:
    """Of one link, which is critical from some line on until another one; `critical` is for how long it was so. Every
    fourth link has no limit, and neither has any of every other agent."""

    chance: random.Random
    critical: int | None
    now: bool = False

    @classmethod
    def of(cls, link: str) -> Lag:
        _, agent, number = link.split("-")
        return cls(random.Random(link), 0 if int(agent) % 2 and int(number) % 4 else None)

    def told(self, text: str, status: str, lasts: int) -> str:
        said = "null"
        if self.critical is not None:
            self.now ^= self.chance.random() < 0.02
            self.critical += lasts if self.now and status != PAUSED else 0
            said = json.dumps(self.now)
        return text.replace('"lag_is_critical": null', f'"lag_is_critical": {said}', 1)


@dataclass
class Queue:
    """Of one link, in the life of one agent; `told` is what its lines have."""

    link: str
    planted: str
    truth: Truth
    told: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COMPARED, 0))

    def move(self, at: int, chance: random.Random) -> None:
        """Now and then all is quiet, and compared. From the first time on what moves is known."""
        if chance.random() < 0.5:
            return
        is_known, waiting = self.told["looks"] > 0, chance.randrange(50)
        hour = self.truth.upstream.setdefault((self.link, (at - 1) // HOUR), Upstream())
        self.told["looks"] += 1
        if is_known:
            self._compare(hour, waiting - self.told["waiting"], chance)
        self.told["waiting"] = hour.after = waiting

    def _compare(self, hour: Upstream, growth: int, chance: random.Random) -> None:
        wrong, settled = chance.randrange(3), 50 + chance.randrange(100)
        strange = 1 if chance.random() < 0.01 else 0
        found = {name: wrong if name == self.planted else 0 for name in ("expired", "uncounted", "repeated")}
        unexplained = {"too much": strange, "too little": -strange}.get(self.planted, 0)
        acknowledged = settled - found["repeated"] + unexplained
        entered = acknowledged + found["expired"] - found["uncounted"] + growth
        self._add(entered=entered, acknowledged=acknowledged, growth=growth, settled=settled)
        self._add(settled_again=found["repeated"] and found["repeated"] + chance.randrange(5))
        hour.entered += entered
        hour.acknowledged += acknowledged
        hour.expired += found["expired"]
        hour.uncounted += found["uncounted"]
        hour.repeated += found["repeated"]
        hour.unexplained += unexplained

    def _add(self, **more: int) -> None:
        for name, number in more.items():
            self.told[name] += number


def _counting(text: str, counted: Account, unsettled: int, upstream: dict[str, int]) -> str:
    numbers = {"forwarded": counted.forwarded, "taken": counted.taken, "given_back": counted.given_back}
    if not upstream["looks"]:
        text = text.replace('"waiting": 0', '"waiting": null', 1)
    for name, number in (numbers | {"unsettled": unsettled} | upstream).items():
        text = text.replace(f'"{name}": 0', f'"{name}": {number}', 1)
    return text


def _own_lines(agent: str, lives: list[Life]) -> Iterator[str]:
    for first, last in lives:
        for step in range(first, last + 1):
            yield json.dumps(line(step * 10, "started" if step == first else "heartbeat", agent=agent))


def _told(first: int, last: int, offset: int, chance: random.Random) -> Iterator[tuple[int, str, str]]:
    """A link starts, and now and then something happens between two samples; its last word is a sample."""
    status = "starting"
    yield first * INTERVAL + offset, "transition", status
    for step in range(first + 1, last + 1):
        if step == first + 1 or (step < last and chance.random() < 0.01):
            status = "running" if status != "running" else chance.choice(CAUSES)
            yield (step - 1) * INTERVAL + offset + chance.randrange(1, INTERVAL), "transition", status
        yield step * INTERVAL + offset, "sample", status


def _texts(agent: str, link: str, told: list[tuple[int, str, str]]) -> Iterator[str]:
    """One line is rendered and the others are cut from it: a million of them take seconds."""
    template = json.dumps(line(0, "STATUS", seq=12345, agent=agent, link=link, type="TYPE", ts="MOMENT", **COUNTED))
    for at, kind, status in told:
        moment = instant(at / SECOND).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        # The number before the moment, whose digits may be the same.
        text = template.replace("12345", str(at // 1000), 1).replace("MOMENT", moment, 1)
        yield text.replace("TYPE", kind, 1).replace("STATUS", status, 1)


def _write_spoilt(lines: list[str], directory: Path, chance: random.Random, truth: Truth) -> None:
    """Some come twice, some are torn before they are written whole, some come late, and all in any order."""
    twice = chance.sample(lines, len(lines) // 100)
    torn = [text[: chance.randrange(1, len(text) - 1)] for text in chance.sample(lines, len(lines) // 200)]
    every = [*lines, *twice, *torn]
    chance.shuffle(every)
    for part in range(FILES):
        write(directory, *every[part::FILES])
    truth.lines += len(every)
    truth.bad += len(torn)
