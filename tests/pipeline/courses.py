"""Courses of small groups, drawn by chance: agents that are suspended, stopped, killed, doubled and without a group at
first, and links that fail near their starts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.pipeline.lines import line, of_standby
from tests.pipeline.reference import STANDBY, VERDICTS, Counts, Said

SECOND = 1_000_000
INTERVAL = 10
LINKS = ("l", "m")
COUNTED = ("taken", "forwarded", "given_back", "unsettled")


@dataclass
class Course:
    """The lines of each file, and what they say."""

    group: str
    chance: random.Random
    files: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    said: list[Said] = field(default_factory=list)
    stood: list[Said] = field(default_factory=list)
    """What is said of the standby."""

    @property
    def of_standby(self) -> list[Said]:
        return [*(one for one in self.said if not one.link), *self.stood]

    def stand(self, run: str, at: float, status: str, seq: int, agent: str) -> None:
        at = round(at * SECOND) / SECOND
        spoken = of_standby(at, status, agent=agent, seq=seq, group=self.group, error=f"it is {status}")
        self.files.setdefault(run, []).append(spoken)
        self.stood.append(Said(round(at * SECOND), seq, agent, STANDBY, status, sample=True))

    def say(self, run: str, at: float, status: str, seq: int, **more: Any) -> None:
        own = status in ("started", "heartbeat", "stopped")
        agent = more.pop("agent")
        # The file counts in microseconds.
        at = round(at * SECOND) / SECOND
        counts: Counts | None = more.pop("counts", None)
        numbers = {} if counts is None else {"schema": 2} | dict(zip(COUNTED, counts, strict=True))
        if counts is not None and more.get("lag_is_critical") is not None:
            numbers["schema"] = 3
        told = {"group": self.group} | more | numbers
        self.files.setdefault(run, []).append(line(at, status, agent=agent, seq=seq, **told))
        self.said.append(
            Said(
                round(at * SECOND),
                seq,
                agent,
                "" if own else more["link"],
                status,
                more.get("type") == "sample",
                INTERVAL * SECOND if own else 0,
                run,
                counts,
                more.get("lag_is_critical"),
                more.get("backlog"),
                more.get("moves_from"),
            )
        )


def course(chance: random.Random, group: str, end: float) -> Course:
    made = Course(group, chance)
    for agent in ("a", "b")[: chance.choice((1, 1, 2))]:
        _agent(made, f"{agent}-{group}", end, "standby" if agent == "b" else "starting")
    for run in [*made.files]:
        if chance.random() < 0.2:  # the file is there twice
            made.files[f"copy/{run}"] = made.files[run]
    return made


def _agent(made: Course, agent: str, end: float, status: str) -> None:
    chance = made.chance
    at, number, seq = chance.uniform(0, 60), 0, 0
    while at < end:
        number += 1
        if chance.random() < 0.5:
            seq = 0
        lasts = chance.choice((chance.uniform(20, 300), end))
        one = Run(made, agent, f"{agent}-{number}", dict.fromkeys(LINKS, status))
        at, seq = one.lives(at, min(end, at + lasts), seq)
        at += chance.choice((0.5, 25, 50, 400))


@dataclass
class Books:
    """What one process counts of one link; now and then it loses a message, or counts one twice."""

    chance: random.Random
    taken: int = 0
    forwarded: int = 0
    given_back: int = 0
    in_flight: int = 0
    unexplained: int = 0

    def __post_init__(self) -> None:
        self.is_old = self.chance.random() < 0.1

    def moved(self, *, flows: bool) -> Counts | None:
        chance = self.chance
        if flows:
            taken = chance.randrange(1000)
            settled = chance.randrange(self.in_flight + taken + 1)
            back = chance.randrange(settled + 1) if chance.random() < 0.1 else 0
            lost = chance.choice((-1, 1)) if settled > back and chance.random() < 0.05 else 0
            self._move(taken, settled - back - lost, back, settled)
            self.unexplained += lost
        else:  # its channels have ended
            self._move(0, 0, self.in_flight, self.in_flight)
        return None if self.is_old else (self.taken, self.forwarded, self.given_back, self.in_flight)

    def _move(self, taken: int, forwarded: int, back: int, settled: int) -> None:
        self.taken += taken
        self.forwarded += forwarded
        self.given_back += back
        self.in_flight += taken - settled


@dataclass
class Lag:
    """Whether it is critical, as one process knows it; some know no limit."""

    chance: random.Random
    is_critical: bool = False

    def __post_init__(self) -> None:
        self.is_limited = self.chance.random() < 0.7

    def now(self) -> bool | None:
        self.is_critical ^= self.chance.random() < 0.1
        return self.is_critical if self.is_limited else None


@dataclass
class Run:
    made: Course
    agent: str
    name: str
    statuses: dict[str, str]
    books: dict[str, Books] = field(init=False)
    lags: dict[str, Lag] = field(init=False)
    source: str = field(init=False)

    def __post_init__(self) -> None:
        self.books = {link: Books(random.Random(f"{self.name} {link}")) for link in LINKS}
        self.lags = {link: Lag(random.Random(f"lag of {self.name} {link}")) for link in LINKS}
        self.source = random.Random(f"source of {self.name}").choice(("old", "older"))

    def lives(self, at: float, end: float, seq: int) -> tuple[float, int]:
        """Until when, and the last number."""
        chance, first = self.made.chance, True
        of_standby = random.Random(f"standby of {self.name}")
        verdict = of_standby.choice(VERDICTS)
        nameless = chance.random() < 0.5
        while at < end:
            seq += 10
            unknown: dict[str, Any] = {"group": None, "cluster": None} if nameless and first else {}
            self.made.say(self.name, at, "started" if first else "heartbeat", seq, agent=self.agent, **unknown)
            for place, link in enumerate(LINKS):
                seq += 1
                self._link(link, at + 0.5 + place, seq, first=first)
            if of_standby.random() < 0.9:
                verdict = of_standby.choice((*VERDICTS, *[verdict] * 12))
                self.made.stand(self.name, at + 3, verdict, seq + 1, self.agent)
            first = False
            at += INTERVAL
            if chance.random() < 0.03:
                at += chance.choice((15, 25, 50, 90))  # suspended
        if chance.random() < 0.5:
            self.made.say(self.name, at - 3, "stopped", seq + 5, agent=self.agent)
        return at, seq + 5

    def _link(self, link: str, at: float, seq: int, *, first: bool) -> None:
        chance, changed = self.made.chance, first
        if not first and chance.random() < (0.5 if self.statuses[link] in ("starting", "backoff") else 0.04):
            self.statuses[link] = chance.choice(("running", "running", "backoff", "starting", "paused", "blocked"))
            changed = True
        kind = "transition" if changed else "sample"
        status, books = self.statuses[link], self.books[link]
        counts = books.moved(flows=status == "running")
        said: dict[str, Any] = {"type": kind, "counts": counts, "lag_is_critical": self.lags[link].now()}
        said["backlog"] = random.Random(f"backlog of {self.name} {seq}").choice((None, 0, 1, 2, 3))
        said["moves_from"] = self.source if link == "m" and seq > 100 else None
        self.made.say(self.name, at, status, seq, agent=self.agent, link=link, **said)


def courses(seed: int, count: int, end: float) -> Iterator[Course]:
    chance = random.Random(seed)
    for number in range(count):
        yield course(chance, f"g{number}", end)
