"""`python -m tests.simulation`: runs seeds; prints what each one that fails brings to light, and how to replay it."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import MutableMapping
from typing import Any

from tests.simulation.clocks import simulate_clocks
from tests.simulation.forks import Forks, Seeds
from tests.simulation.loop import RUNNING


def main() -> int:
    options = _options()
    if options.seeds_of_safeguards is not None:
        return _seeds_of_safeguards(options)
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of strings are ordered by it
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], _environment())
    simulate_clocks()
    from tests.simulation.seeds import run  # after the clocks

    asked = Seeds(options.first, options.seeds, options.slots, options.without, options.seconds, options.until_failure)
    if options.verbose:
        _tell_all()

    def tell(seed: int, violations: list[str]) -> None:
        print(f"seed {seed} fails; replay it: {asked.replayed(seed)}")
        print("".join(f"  {each}\n" for each in violations), end="")

    found = run(asked, tell)
    print(f"{found.ran} seeds from {asked.first}, {len(found.failed)} failed, {found.effort:.1f} s of CPU")
    if options.digests:
        print("".join(f"{seed} {digest}\n" for seed, digest in found.digests.items()), end="")
    return bool(found.failed)


def _seeds_of_safeguards(options: argparse.Namespace) -> int:
    """Prints the tables' lines, with another seed where the one in the table misses its safeguard no more."""
    from tests.simulation.test_simulation import RARELY_MISSED, SAFEGUARDS, without

    known = SAFEGUARDS | RARELY_MISSED
    with Forks({}) as forks:
        for name in options.seeds_of_safeguards or known:
            found = without(forks, name, known.get(name, 0), count=options.seeds, seconds=options.seconds)
            what = "".join(f'"{name}": {seed},' for seed in found.failed) or f"# {name}: {found.ran} seeds hold"
            print(what, flush=True)
    return 0


def _tell_all() -> None:
    import structlog

    from tests.simulation.world import World

    structlog.configure(
        processors=[
            _placed,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["at", "event"]),
        ]
    )
    World.on_note = staticmethod(lambda now, what: print(f"{now:.3f}", *what))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--seconds", type=float, default=0.0, help="begin no seed after so much CPU time; 0: no limit")
    parser.add_argument("--slots", type=int, default=0, help="so many leases, as fewer are faster; 0: the agent's own")
    parser.add_argument("--without", help="take this safeguard out: see safeguards.py")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first seed that fails")
    parser.add_argument(
        "--seeds-of-safeguards", nargs="*", metavar="NAME", help="of all or these: the seed that misses each"
    )
    parser.add_argument("--digests", action="store_true", help="what each seed did, in short")
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
