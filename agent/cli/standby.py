"""The commands `standby …`: the state of a standby, its promotion, and the way back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.cli import output
from agent.cli.options import INTERRUPTED, OK
from agent.cli.remote import Remote, RemoteError
from agent.cli.signals import until_signal
from agent.core.text import counted, in_full
from agent.errors import BrokerError, PermanentError, UsageError

if TYPE_CHECKING:
    from agent.amqp.connect import Connection
    from agent.core.standby.settings import StandbySettings
    from agent.definitions.sources.load import Configuration
    from agent.migration.promoting import Promotion
    from agent.migration.reading import ClusterPair
    from agent.migration.switch_record import Switchover

NOT_IN_STEP: Final = 4
LEFT: Final = 4
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
    for binding in found["held_back"][:MOST_HELD_BACK]:
        yield f"made at a promotion: {binding}"
    if (more := len(found["held_back"]) - MOST_HELD_BACK) > 0:
        yield f"and {more:,} more; --format json has them all"
    yield from found["notes"]
    if found["queues"]:
        yield f"{'SOURCE':>10}  {'HERE':>10}  QUEUE"
    for queue in found["queues"]:
        source, here = ("-" if queue[side] is None else f"{queue[side]:,}" for side in ("source", "here"))
        yield f"{source:>10}  {here:>10}  {queue['vhost']}/{queue['queue']}"
        for doubt in queue["doubts"]:
            yield f"{'':>22}  ! {doubt}"


def promote(file: Path, remote: Remote, *, failover: bool, is_dry: bool, form: str) -> int:
    from agent.definitions.sources.load import load_configuration
    from agent.migration.standby import open_standby

    configuration = load_configuration(str(file), environment=os.environ)
    settings = configuration.settings.standby
    if settings is None:
        raise UsageError(f"{file} has no section 'standby'")

    async def run(settings: StandbySettings = settings) -> tuple[dict[str, Any], bool]:
        async with open_standby(configuration, settings) as clusters:
            return await _Promoting(configuration, settings, clusters, remote).run(failover=failover, is_dry=is_dry)

    found, is_complete = until_signal(run(), INTERRUPTED)
    if form == "json":
        output.say_json(found)
    else:
        for line in promotion_lines(found):
            output.say(line)
    return OK if is_complete else LEFT


def reverse(file: Path, to: Path) -> int:
    from agent.definitions.sources.load import load_configuration
    from agent.definitions.sources.reversed_standby import reversed_standby

    configuration = load_configuration(str(file), environment=os.environ)
    text = reversed_standby(configuration)
    try:
        descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # it may hold passwords
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise UsageError(f"--write {str(to)!r}: {error.strerror}") from error
    output.say(f"written to {to}, for an agent beside the former source: see docs/standby.md before it runs")
    return OK


class _Promoting:
    def __init__(
        self, configuration: Configuration, settings: StandbySettings, clusters: ClusterPair, remote: Remote
    ) -> None:
        self._configuration = configuration
        self._settings = settings
        self._clusters = clusters
        self._remote = remote

    async def run(self, *, failover: bool, is_dry: bool) -> tuple[dict[str, Any], bool]:
        """Whatever is decided by a look holds until the end, as other commands are refused meanwhile."""
        from agent.migration.promoting import PromotionRunsError, promoting_alone

        async with AsyncExitStack() as opened:
            alone: list[Connection] = []
            absent = await self._leave_out_absent(failover=failover)
            if not is_dry:
                own = self._configuration.settings.downstream.uris
                try:
                    alone = await opened.enter_async_context(promoting_alone(own, self._settings.vhosts))
                except PromotionRunsError:
                    raise
                except BrokerError as error:  # of a failover the HTTP API is enough
                    if not failover:
                        raise
                    output.complain(f"whether a switchover runs isn't known, one that does ends by itself: {error}")
            found, is_complete = await self._run(alone, failover=failover, is_dry=is_dry)
            return found | {"left_out": absent}, is_complete

    async def _leave_out_absent(self, *, failover: bool) -> list[str]:
        """The vhosts that the standby hasn't: a failover promotes the others."""
        there = {each["name"] for each in await self._clusters.target.vhosts()}
        if (absent := sorted(self._settings.vhosts.keys() - there)) and not failover:
            raise PermanentError(f"the standby has no vhost {', '.join(map(repr, absent))}, or the user may not see it")
        chosen = {vhost: selection for vhost, selection in self._settings.vhosts.items() if vhost in there}
        self._settings = replace(self._settings, vhosts=chosen)
        return absent

    async def _run(self, alone: list[Connection], *, failover: bool, is_dry: bool) -> tuple[dict[str, Any], bool]:
        from agent.migration.promoting import end_standby, look_at_promotion, make_bindings

        how = "failover" if failover else "switchover"
        promotion = await look_at_promotion(self._clusters.target, self._settings)
        seen = await self._seen()
        found = _as_json(promotion, seen, how)
        if promotion.since is not None and promotion.how != how and not failover:
            raise PermanentError(f"the standby is promoted since {promotion.since}, and clients may use it")
        switched = None
        if failover:
            if not is_dry:
                asks = None if seen is None else self._has_ended
                await end_standby(self._clusters.target, promotion, how, asks)
        else:
            switched = await self._switch_over(promotion, seen, alone, is_dry=is_dry)
            found |= switched_as_json(switched, is_dry=is_dry)
        if is_dry:
            return found, not found.get("problems")
        has_made = switched is None or not switched.problems
        if has_made:
            await make_bindings(self._clusters.target, promotion)
        found |= {
            "made": [str(key) for key in promotion.bindings if has_made and key not in promotion.left],
            "promoted": promotion.is_done,
            "since": promotion.since,
            "agent_has_ended": promotion.has_agent_ended,
            "left": {str(key): reason for key, reason in promotion.left.items()},
        }
        return found, promotion.is_done

    async def _switch_over(
        self, promotion: Promotion, seen: dict[str, Any] | None, alone: list[Connection], *, is_dry: bool
    ) -> Switchover:
        from agent.migration.promoting import end_standby
        from agent.migration.reading import refusal_of
        from agent.migration.switch_record import Switchover
        from agent.migration.switching import SwitchingOver

        switching = SwitchingOver(self._configuration, self._settings, self._clusters, output.complain, alone)
        is_first = promotion.since is None
        if is_first and (seen is None or not seen["in_step"]):
            why = "no agent answers that keeps it in step" if seen is None else "; ".join(seen["why_not"])
            raise PermanentError(f"the standby isn't in step, so it isn't known what would be missing: {why}")
        if not is_first and await switching.is_done():
            return Switchover()
        if clients := await switching.connected():
            raise PermanentError(refusal_of(clients))
        if is_dry:
            return await switching.look()
        if is_first:
            await switching.wait_until_drained()
            await switching.begin()
        await end_standby(self._clusters.target, promotion, "switchover", self._has_ended)
        if not promotion.has_agent_ended:
            raise PermanentError("the agent hasn't ended its links yet: look at its log, and run it again")
        return await switching.run()

    async def _seen(self) -> dict[str, Any] | None:
        try:
            return await asyncio.to_thread(self._remote.standby)
        except RemoteError:
            return None

    async def _has_ended(self) -> bool:
        seen = await self._seen()
        return seen is not None and seen["promoted"] is not None and not seen["links"]


def _as_json(promotion: Promotion, seen: dict[str, Any] | None, how: str) -> dict[str, Any]:
    return {
        "how": how,
        "earlier": promotion.how,
        "promoted": promotion.since is not None,
        "since": promotion.since,
        "agent_answers": seen is not None,
        "links": 0 if seen is None else seen["links"],
        "missing": None if seen is None or not seen["links"] else seen["waiting"],
        "not_here": None if seen is None or not seen["links"] else seen["not_here"],
        "repeats_at_most": promotion.repeats_at_most,
        "bindings": [str(key) for key in promotion.bindings],
    }


def switched_as_json(switched: Switchover, *, is_dry: bool) -> dict[str, Any]:
    """A switchover that stopped has taken out only some copies, of the queues that it had counted."""
    counted_queues = [queue for queue in switched.queues if queue.kept is not None and not queue.keeps]
    taken_out = sum(queue.old - queue.left - queue.taking for queue in counted_queues)
    return {
        "moved": sum((queue.there if is_dry else queue.kept) or 0 for queue in switched.queues),
        "copies_taken_out": sum(queue.old for queue in switched.queues) if is_dry else taken_out,
        "inexact": {str(key): why for key, why in switched.inexact.items()},
        "problems": switched.problems,
    }


def _missing(found: Mapping[str, Any]) -> str:
    if (missing := found["missing"]) is not None:
        return f"{missing:,}"
    if found["links"]:
        return "unknown, as not all links show it"
    if found["agent_answers"] and found["earlier"] is not None:
        return "unknown, as its links have ended before"
    return "unknown, as no agent answers that has links to the source"


def promotion_lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield from _message_lines(found)
    for vhost in found["left_out"]:
        yield f"left out: vhost {vhost!r}: the standby hasn't it, or the user may not see it"
    for binding in found["bindings"] if "left" not in found else found["made"]:
        yield f"{'to make' if 'left' not in found else 'made'}: {binding}"
    for key, reason in found.get("left", {}).items():
        yield f"left: {key}: {reason}"
    if "left" not in found:
        yield "nothing was changed (--dry-run)"
    elif found["promoted"]:
        yield f"promoted since {found['since']}"
        if found["how"] == "failover":
            yield "once the source is back: what hadn't come is in its queues 'federation: …', see docs/standby.md"
        if not found["agent_has_ended"]:
            yield "no agent has said that its links have ended: one that runs ends them within 30 s"


def _message_lines(found: Mapping[str, Any]) -> Iterator[str]:
    if found["how"] == "failover":
        repeats = found["repeats_at_most"]
        yield f"may be missing, as they waited in links when they were last seen: {_missing(found)}"
        if found["earlier"] == "switchover":
            yield "a switchover was begun before: what it hadn't moved of the source's queues is still there"
        if (not_here := found["not_here"]) is not None:
            yield f"missing, as the source held them when it was last seen, and they aren't here: at least {not_here:,}"
        yield f"may be repeated: {'unknown' if repeats is None else f'at most {repeats:,}'}"
    elif "moved" in found:
        moved, copies = ("to move", "to take out") if "left" not in found else ("moved", "taken out")
        yield f"{moved} from the source: {found['moved']:,}; copies {copies}: {found['copies_taken_out']:,}"
        for key, why in found["inexact"].items():
            yield f"{key} keeps its copies, which may be repeated: {why}"
        for problem in found["problems"]:
            yield f"left: {problem}"
