"""Findings by hand, as a month of a fleet would give them: what the page makes of them needs no Spark."""

import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from agent.pipeline.findings.model import (
    BudgetUse,
    ClusterEdge,
    ClusterEdges,
    Disruption,
    Failures,
    Fleet,
    HeatMap,
    HeatRow,
    Incident,
    LinkIdentity,
    LinkTime,
    MessageCounts,
    ObjectiveResult,
    Percentiles,
    ReportFindings,
    TimeSpent,
    Traffic,
    TrafficStep,
)
from agent.pipeline.findings.time_spent import unit
from agent.pipeline.findings.traffic import step_length
from agent.pipeline.schema import SECOND, Bucket
from agent.pipeline.window import Bounds, micros

HOUR = 3600 * SECOND
DAY = 24 * HOUR
START = micros(datetime(2026, 10, 1, tzinfo=UTC))
SLOTS = 240
REFUSED = "upstream eu-1: connection refused by eu-1.example:5672; see that a broker listens there"


def identity(number: int, name: str | None = None, **told: Any) -> LinkIdentity:
    clusters = ("eu-1", "us-east", "ap-south")
    usual = LinkIdentity(
        "g", f"{number:08x}", "exchange", "/", name or f"orders.{number}", "origin", clusters[number % 3], "dc2"
    )
    return replace(usual, **told)


def findings(
    links: int = 18, length: int = 31 * DAY, *, names: tuple[str, ...] = (), zone: str = "UTC"
) -> ReportFindings:
    """The first links failed most; a name is given to each that has one."""
    chance = random.Random(5)
    window = Bounds(START, START + length)
    those = [identity(at, names[at] if at < len(names) else None) for at in range(min(links, 40))]
    worst = tuple(link_time(one, at, window) for at, one in enumerate(those))
    whole = TimeSpent({bucket: sum(link.spent.of(bucket) for link in worst) for bucket in Bucket})
    before = TimeSpent({Bucket.UP: 0.997 * links * window.seconds, Bucket.DOWN: 0.003 * links * window.seconds})
    return ReportFindings(
        window,
        zone,
        {"read": 4_812_331, "bad": 12, "later_schema": 0},
        Fleet(links, whole, before, links),
        worst,
        failures(those, window),
        SLOTS,
        {link.identity: strip(chance) for link in worst},
        heats(those, window, chance),
        traffic(window, chance),
        edges(those, chance),
        objectives(those),
        budgets(those),
    )


def link_time(one: LinkIdentity, at: int, window: Bounds) -> LinkTime:
    down = window.seconds * 0.04 / (1 + at) ** 2
    known = window.seconds * 0.98
    spent = {Bucket.DOWN: down, Bucket.DEGRADED: down / 3, Bucket.PAUSED: 600.0, Bucket.UNKNOWN: window.seconds * 0.02}
    return LinkTime(one, TimeSpent({**spent, Bucket.UP: known - down * 4 / 3 - 600.0}), max(0, 9 - at))


def strip(chance: random.Random) -> dict[int, TimeSpent]:
    slots, status = dict[int, TimeSpent](), Bucket.UP
    for number in range(SLOTS):
        if chance.random() < 0.08 or status is not Bucket.UP:
            status = chance.choice([Bucket.UP, *Bucket])
        seconds = {status: 90.0} | ({Bucket.DOWN: 10.0} if chance.random() < 0.02 else {})
        slots[number] = TimeSpent(seconds)
    return slots


def failures(those: list[LinkIdentity], window: Bounds) -> Failures:
    if not those:
        return Failures()
    parts = [window.start + (window.end - window.start) * part // 12 for part in range(12)]
    spans = Bounds(parts[2], parts[2] + 29 * 60 * SECOND), Bounds(parts[7], parts[7] + 45 * SECOND)
    shared = Disruption("down", "upstream", "eu-1", those[0], spans[0], False, 12, 1, 20_880, 29 * 60, "", REFUSED)
    alone = Disruption("down", None, None, those[-1], spans[1], False, 1, 1, 45, 45, "upstream_lost", None)
    still = Disruption("down", "agent", "dc2/dc2-a", those[0], Bounds(parts[11], window.end), True, 3, 1, 9_000, 3_000,
                       "upstream_lost", None)  # fmt: skip
    incidents = tuple(
        Incident(one, Bounds(parts[at % 12], parts[at % 12] + at * 977 * SECOND), at == 5, at * 900.0, at % 3,
                 "backoff", "upstream_refused", REFUSED if at % 2 else None, at * 431 or None)
        for at, one in enumerate(those)
    )  # fmt: skip
    disruptions = (
        shared,
        Disruption("blocked", "upstream", "us-east", those[0], Bounds(parts[1], parts[10]), False, 50, 7, 378_000, 1080,
                "upstream_blocked", None),
        Disruption("down", None, None, those[-1], Bounds(parts[3], parts[9]), False, 1, 7, 3_600, 900, "upstream_lost",
                None),
        still,
    )  # fmt: skip
    largest = tuple(sorted(disruptions, key=lambda one: -one.seconds))
    return Failures(164, 1, 2, 98_400, (shared, alone, still), incidents, 31, largest)


def heats(those: list[LinkIdentity], window: Bounds, chance: random.Random) -> tuple[HeatMap, ...]:
    by = unit(window.end - window.start)
    step = {"hour": HOUR, "day": DAY, "week": 7 * DAY, "month": 30 * DAY, "year": 365 * DAY}[by]
    periods = tuple(range(window.start, window.end, step))

    def row(label: tuple[str | None, ...], share: float) -> HeatRow:
        cells = {
            period: 100.0 if chance.random() > share else chance.choice([0, 45.5, 93, 99.2, 99.95])
            for period in periods
        }
        return HeatRow(label, {**cells, periods[0]: None})

    edges_rows = tuple(row((name, "dc2"), 0.2) for name in ("eu-1", "us-east", None))
    labels = ((one.name, one.upstream_cluster, one.cluster) for one in those)
    links_rows = tuple(row(label, 0.9 / (at + 1)) for at, label in enumerate(labels))
    return HeatMap("edges", by, periods, edges_rows), HeatMap("links", by, periods, links_rows)


def traffic(window: Bounds, chance: random.Random) -> Traffic:
    step = step_length(window.end - window.start)
    steps = []
    for at, start in enumerate(range(window.start, window.end, step)):
        base = 0.004 + 0.002 * chance.random()
        transfer = Percentiles() if at % 40 == 7 else Percentiles(base, base * 6, base * (40 if at % 17 == 0 else 20))
        lag = Percentiles(chance.randrange(5), chance.randrange(40), chance.randrange(40, 900))
        steps.append(TrafficStep(start, chance.randrange(40_000, 90_000), transfer, lag))
    counts = MessageCounts(7_812_441, 9_123_456_789, 77, 12, 3, 0)
    return Traffic(step, counts, Percentiles(0.0051, 0.031, 0.12), Percentiles(2, 30, 640), tuple(steps))


def edges(those: list[LinkIdentity], chance: random.Random) -> ClusterEdges:
    shares = ((1.0, 0.0), (1.0, 0.005), (1.0, 0.03))
    names = ("eu-1", "us-east", "ap-south", None)
    found = tuple(
        ClusterEdge(
            name,
            target,
            chance.randrange(1, 9),
            chance.randrange(10) ** 6,
            TimeSpent({Bucket.UP: up, Bucket.DOWN: down}),
        )
        for name in names
        for target, (up, down) in zip(("dc2", "dc3", "eu-1"), shares, strict=True)
        if name != target and chance.random() < 0.7
    )
    return ClusterEdges(len(found), found) if those else ClusterEdges()


def budgets(those: list[LinkIdentity]) -> tuple[BudgetUse, ...]:
    burns = {"1h": 20.0, "5m": 15.1, "6h": 3.0, "30m": 1.0, "3d": 0.4}
    return tuple(
        BudgetUse(one, "availability", 99.9, 99.5, 480.0 / (at + 1), burns) for at, one in enumerate(those[:9])
    )


def objectives(those: list[LinkIdentity]) -> tuple[ObjectiveResult, ...]:
    links, met = len(those), max(0, len(those) - 4)
    found = (
        ObjectiveResult("availability", "time", 99.9, 30, links, met, 1, 99.93, 71.0, 10.0, 23.7),
        ObjectiveResult("prompt", "messages", 99.0, 7, links, links, 0, 99.98, 2.0, 7.0, None),
    )
    return found if those else ()
