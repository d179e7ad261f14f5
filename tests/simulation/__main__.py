"""`python -m tests.simulation`: runs seeds; prints what each one that fails brings to light, and how to replay it."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import warnings
from collections.abc import MutableMapping
from typing import Any

from tests.simulation.clocks import real_effort, simulate_clocks
from tests.simulation.loop import RUNNING

FAILURES = 10


def main() -> int:
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of strings are ordered by it
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], _environment())
    simulate_clocks()
    _limit_slots(options.slots)
    import structlog  # after the clocks

    from tests.simulation.world import World, simulate

    if options.verbose:
        structlog.configure(
            processors=[
                _placed,
                structlog.processors.format_exc_info,
                structlog.processors.KeyValueRenderer(key_order=["at", "event"]),
            ]
        )
        World.on_note = staticmethod(lambda now, what: print(f"{now:.3f}", *what))
    else:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        logging.disable(logging.CRITICAL)
    if options.without is not None:
        from tests.simulation.safeguards import take_out

        take_out(options.without)
    begun, failed, ran, reached = real_effort(), [], 0, set()
    digests: dict[int, str] = {}
    forgotten = _watch_forgotten()
    for seed in range(options.first, options.first + options.seeds):
        if options.seconds and real_effort() - begun > options.seconds:
            break
        findings, digests[seed] = simulate(seed)
        findings.violations += forgotten
        forgotten.clear()
        ran += 1
        reached |= findings.reached
        if findings.violations:
            failed.append(seed)
            if not options.json:
                print(f"seed {seed} fails; replay it: make simulate SEED={seed}{_also(options)}")
                print("".join(f"  {each}\n" for each in findings.violations), end="")
        if (options.until_failure and failed) or len(failed) >= FAILURES:
            break
    effort = real_effort() - begun
    if options.json:
        result = {"ran": ran, "failed": failed, "effort": effort, "reached": sorted(reached), "digests": digests}
        print(json.dumps(result))
    else:
        print(f"{ran} seeds from {options.first}, {len(failed)} failed, {effort:.1f} s of CPU")
    return bool(failed)


def _also(options: argparse.Namespace) -> str:
    """What a seed depends on besides itself."""
    given = [f"--slots {options.slots}"] if options.slots else []
    given += [f"--without {options.without}"] if options.without else []
    return f" ARGS='{' '.join(given)}'" if given else ""


def _watch_forgotten() -> list[str]:
    """Coroutines that nobody awaits: work that was to be done and isn't."""
    found: list[str] = []
    warnings.filterwarnings("error", message="coroutine .* was never awaited")
    sys.unraisablehook = lambda what: found.append(str(what.exc_value))
    return found


def _limit_slots(count: int) -> None:
    """Before whatever imports the number; 0 leaves it as it is."""
    from agent.core.replicas import slots

    slots.SLOTS = count or slots.SLOTS  # type: ignore[misc]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--seconds", type=float, default=0.0, help="begin no seed after so much CPU time; 0: no limit")
    parser.add_argument("--slots", type=int, default=0, help="so many leases, as fewer are faster; 0: the agent's own")
    parser.add_argument("--without", help="take this safeguard out: see safeguards.py")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first seed that fails")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
    parser.add_argument("--verbose", action="store_true", help="the agents' log")
    return parser.parse_args()


def _placed(logger: object, method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """When and in which process."""
    process = RUNNING.get()
    entry["at"] = f"{asyncio.get_running_loop().time():.3f} {process.name if process else 'world'}"
    for key in ("link", "kind", "vhost", "upstream", "name"):
        entry.pop(key, None)
    return entry


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": "0"}


if __name__ == "__main__":
    sys.exit(main())
