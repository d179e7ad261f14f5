"""Runs seeds one after another. Only a process whose clocks are simulated may import this, and `run` changes it."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from itertools import takewhile

import structlog

from agent.core.replicas import slots
from tests.simulation.clocks import real_effort
from tests.simulation.forks import Found, Seeds
from tests.simulation.safeguards import take_out
from tests.simulation.world import simulate

FAILURES = 10  # and no more seeds then


def run(asked: Seeds, on_failure: Callable[[int, list[str]], None] = lambda seed, violations: None) -> Found:
    if not structlog.is_configured():
        be_silent()
    limit_slots(asked.slots)
    if asked.without is not None:
        take_out(asked.without)
    failed: dict[int, list[str]] = {}
    digests: dict[int, str] = {}
    reached: set[str] = set()
    begun, forgotten = real_effort(), _watch_forgotten()
    most = 1 if asked.until_failure else FAILURES

    def goes_on(_: int) -> bool:
        return len(failed) < most and not (asked.seconds and real_effort() - begun > asked.seconds)

    for seed in takewhile(goes_on, range(asked.first, asked.first + asked.count)):
        findings, digests[seed] = simulate(seed)
        violations = findings.violations + forgotten
        forgotten.clear()
        reached |= findings.reached
        if violations:
            failed[seed] = violations
            on_failure(seed, violations)
    return Found(len(digests), failed, frozenset(reached), digests, real_effort() - begun)


def be_silent() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)


def limit_slots(count: int) -> None:
    """In all modules that have imported the number; 0 leaves it as it is."""
    usual = slots.SLOTS
    for name, module in tuple(sys.modules.items()):
        if count and "replicas" in name and getattr(module, "SLOTS", None) == usual:
            module.SLOTS = count  # type: ignore[attr-defined]


def _watch_forgotten() -> list[str]:
    """Coroutines that nobody awaits: work that was to be done and isn't."""
    found: list[str] = []
    warnings.filterwarnings("error", message="coroutine .* was never awaited")
    sys.unraisablehook = lambda what: found.append(str(what.exc_value))
    return found
