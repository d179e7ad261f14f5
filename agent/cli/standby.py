"""How `standby …` goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from agent.cli import output
from agent.cli.options import OK
from agent.core.text.quantities import counted, in_full

if TYPE_CHECKING:
    from agent.cli.remote import Remote

NOT_IN_STEP: Final = 4
NO_STANDBY: Final = 5
MOST_HELD_BACK: Final = 20


def show(remote: Remote, *, form: str) -> int:
    found = remote.standby()
    if found is None:
        output.complain(f"federation-agent: {remote.where}: it keeps no standby; see docs/standby.md")
        return NO_STANDBY
    if form == "json":
        output.say_json(found)
    else:
        for line in _lines(found):
            output.say(line)
    return OK if found["in_step"] else NOT_IN_STEP


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"cluster {found['cluster']!r} is {'' if found['in_step'] else 'not '}in step with upstream {found['of']!r}"
    for why in found["why_not"]:
        yield f"  {why}"
    lag = found["lag_seconds"]
    waiting = found["waiting"]
    yield (
        f"{counted(found['links'], 'link')}; lag "
        + ("not measured, as no 'probe' is set" if lag is None else in_full(lag))
        + "; "
        + ("how much waits isn't known" if waiting is None else counted(waiting, "message waits", "messages wait"))
    )
    repeats = found["repeats_at_most"]
    yield "a promotion now repeats " + ("an unknown number" if repeats is None else f"at most {repeats:,}")
    yield from found["notes"]
    for binding in found["held_back"][:MOST_HELD_BACK]:
        yield f"made at a promotion: {binding}"
    if (more := len(found["held_back"]) - MOST_HELD_BACK) > 0:
        yield f"and {more:,} more; --format json has them all"
    if found["queues"]:
        yield f"{'SOURCE':>10}  {'HERE':>10}  QUEUE"
    for queue in found["queues"]:
        source, here = ("-" if queue[side] is None else f"{queue[side]:,}" for side in ("source", "here"))
        yield f"{source:>10}  {here:>10}  {queue['vhost']}/{queue['queue']}"
        for doubt in queue["doubts"]:
            yield f"{'':>22}  ! {doubt}"
