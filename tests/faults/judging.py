"""Puts one fault in the midst of traffic, and says what must hold then."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.faults.faults import Fault, Series
from tests.faults.scene import ALL, PREFETCH, Scene
from tests.faults.traffic import AT_ONCE, until
from tests.lab.waiting import DEADLINE

COUNT: Final = 20_000 if ALL else 500
LASTS: Final = 20.0 if ALL else 4.0
"""How long the publisher takes for each fault, if nothing holds it up."""
FLOWS_AGAIN: Final = 30.0 if ALL else 90.0
"""What is promised, and what other tests that have the cores leave of it."""
TABLE: Final = os.environ.get("FEDERATION_AGENT_FAULTS_TABLE", "")
WITH_REASON: Final = frozenset({"backoff", "blocked", "invalid"})
RELEASE: Final = os.environ.get("FEDERATION_AGENT_FAULTS_RELEASE") or None


def put_through(scene: Scene, series: Series) -> None:
    """After each fault nothing is lost, it flows again in time, and the agent has shown what was wrong."""
    scene.traffic.start()
    for fault in series.faults:
        put_one_through(scene, fault)


def put_one_through(scene: Scene, fault: Fault) -> None:
    traffic, account, since = scene.traffic, scene.traffic.account, time.monotonic()
    came, duplicated = len(account.delivered), account.duplicated
    traffic.part()  # its end comes after the fault, so that there is something to flow, however long that lasts
    assert until(lambda: len(account.delivered) - came > COUNT // 4, DEADLINE), "nothing flows"
    if fault.drains:
        scene.drain()
    scene.forget_seen()
    began = time.monotonic()
    fault.do(scene)
    ended = time.monotonic()
    if fault.drains:
        assert until(lambda: scene.is_running, FLOWS_AGAIN)
        scene.up.wait_bound("k", deadline=FLOWS_AGAIN)
    traffic.go_on()
    traffic.end()
    assert until(lambda: account.first_after(ended) is not None, FLOWS_AGAIN), scene.link()
    flows = (account.first_after(ended) or ended) - ended
    if not ALL:
        traffic.part(3 * AT_ONCE)  # published once it flows, so that there is an order to judge
        traffic.end()
    assert until(lambda: traffic.is_published and traffic.is_delivered, 2 * DEADLINE), f"{len(account.missing)} missing"
    assert ALL or any(at > ended + flows for at in account.confirmed.values())
    duplicated = account.duplicated - duplicated
    disorder = account.out_of_order(since, began, ended + flows)
    write_row(fault, scene, flows, duplicated=duplicated, disorder=disorder)
    assert not account.missing
    assert duplicated <= fault.interruptions * PREFETCH
    assert not disorder
    assert flows <= FLOWS_AGAIN
    assert until(lambda: scene.is_running, FLOWS_AGAIN), scene.link()
    judge_statuses(fault, scene.seen)


def judge_statuses(fault: Fault, seen: Sequence[tuple[str, str]]) -> None:
    """What isn't right has its reason beside it, and what has nothing to do with the link doesn't change its status."""
    unexplained = [status for status, error in seen if status in WITH_REASON and not error]
    assert not unexplained, seen
    if fault.runs_on:
        assert {status for status, _ in seen} == {"running"}, seen
        return
    status, words = fault.shows or ("running", "")
    assert any(found == status and words in error for found, error in seen), seen
    # A broker may let go of a lost connection a moment after the next one is there: its consumer is still seen then.
    others = {found for found, error in seen if "consumer(s) already" not in error}
    assert others <= {status, "running", "starting", "backoff", "stopping"} | fault.may_show, seen


def write_row(fault: Fault, scene: Scene, flows: float, *, duplicated: int, disorder: int) -> None:
    """A line of JSON for each fault, where `make faults` asks for it."""
    account = scene.traffic.account
    row = {
        "fault": fault.name,
        "published": len(account.confirmed),
        "delivered": len({number for _, number in account.delivered}),
        "missing": len(account.missing),
        "duplicated": duplicated,
        "out of order": disorder,
        "flows again": round(flows, 1),
        "seen": scene.seen,
    }
    if TABLE:
        with Path(TABLE).open("a") as file:
            file.write(json.dumps(row) + "\n")
