"""The commands `migrate status`, `fence` and `unfence`, and what they print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent.cli import output
from agent.cli.migration_text import MOST_LINES, all_masked, key_as_json, load, masked, more_lines, named
from agent.cli.options import INTERRUPTED, OK, TROUBLE_WITH_BROKERS
from agent.cli.signals import until_signal
from agent.core.migration.fences import IN_FORCE_AFTER
from agent.core.migration.objects import ClusterObjects, ObjectKey, release_text
from agent.core.migration.verdict import MoveVerdict, SourceVerdict
from agent.core.text import counted, rfc3339

if TYPE_CHECKING:
    from agent.definitions.sources.load import Migration
    from agent.management.changing import FencingClient
    from agent.migration.fencing import FenceAccount

NOT_SAFE: Final = TROUBLE_WITH_BROKERS
"""Whoever asks has to wait in both cases."""
_COLOURS: Final = {MoveVerdict.MOVED: "green", MoveVerdict.EMPTY: "yellow"}
_ANSWER: Final = "old cluster can be switched off: "
T = TypeVar("T")


def status(file: Path, *, apart: float, is_unfenced_accepted: bool, form: str) -> int:
    from agent.migration.observing import movers_of, verdict_on

    migration = load(file)
    found, source, seen = _with_source(
        migration,
        lambda client: verdict_on(client, migration.vhosts, movers_of(migration.source), apart=apart),
    )
    is_safe = found.can_be_switched_off(is_unfenced_accepted=is_unfenced_accepted)
    if form == "json":
        answer = {"switch_off": is_safe, "looked_at": rfc3339(seen.at), **_as_json(found, source)}
        output.say_json(all_masked(answer))
    else:
        output.say(f"source: cluster {source.cluster!r}, RabbitMQ {release_text(source.release)}")
        for line in _lines(found, is_safe=is_safe, is_unfenced_accepted=is_unfenced_accepted):
            output.say(output.Ready(masked(output.line(line))))
    return OK if is_safe else NOT_SAFE


def fence(file: Path, users: list[str], *, closes: bool, form: str) -> int:
    from agent.core.addresses.uri import Mechanism
    from agent.migration import fencing

    migration = load(file)
    if any(Mechanism.EXTERNAL in uri.mechanisms for uri in migration.source.uris):
        output.complain("the move's user isn't known, as it logs in by a certificate: don't fence it")
    account = _with_source(
        migration,
        lambda client: fencing.fence(client, migration.source, migration.vhosts.keys(), users, closes=closes),
    )
    _show(account, form)
    if form == "text":
        said = f"closed {counted(account.closed, 'connection')}"
        if not closes:
            older = counted(account.older, "older connection")
            said = f"{older}, of those listed so far, may still publish: --close-connections closes them"
        output.say(f"{said}; fences count after {IN_FORCE_AFTER:.0f} s")
    return NOT_SAFE if account.left else OK


def unfence(file: Path, users: list[str], *, is_forced: bool, form: str) -> int:
    from agent.migration import fencing

    migration = load(file)
    account = _with_source(
        migration, lambda client: fencing.unfence(client, migration.vhosts.keys(), users, is_forced=is_forced)
    )
    _show(account, form)
    is_left = bool(account.left or account.problems)
    if form == "text" and not account.done and not is_left:
        output.say("nobody is fenced")
    return NOT_SAFE if is_left else OK


def _with_source(migration: Migration, work: Callable[[FencingClient], Awaitable[T]]) -> T:
    from agent.management.changing import FencingClient

    async def run() -> T:
        management = migration.source.management
        async with FencingClient(management, where="source", setting="source.management") as client:
            return await work(client)

    return until_signal(run(), INTERRUPTED)


def _show(account: FenceAccount, form: str) -> None:
    if form == "json":
        lists = {
            name: [_pair(vhost, user, why) for (vhost, user), why in found.items()] for name, found in _both(account)
        }
        output.say_json(
            {
                **lists,
                "problems": account.problems,
                "closed_connections": account.closed,
                "older_connections": account.older,
            }
        )
        return
    for name, found in _both(account):
        for (vhost, user), why in found.items():
            mark = output.paint(name, "green" if name == "done" else "red")
            output.say(mark, f" user {user!r} in vhost {vhost!r}: {why}")
    for problem in account.problems:
        output.say(output.paint("left", "red"), f" {problem}")


def _both(account: FenceAccount) -> Iterator[tuple[str, Mapping[tuple[str, str], str]]]:
    yield "done", account.done
    yield "left", account.left


def _pair(vhost: str, user: str, why: str) -> dict[str, str]:
    return {"vhost": vhost, "user": user, "reason": why}


def _as_json(found: SourceVerdict, source: ClusterObjects) -> dict[str, Any]:
    return {
        "source": {"cluster": source.cluster, "version": release_text(source.release)},
        "queues": [
            {**key_as_json(key), "verdict": verdict, "reason": reason}
            for key, (verdict, reason) in found.queues.items()
        ],
        "reasons": found.reasons,
        "unfenced": found.unfenced,
    }


def _lines(found: SourceVerdict, *, is_safe: bool, is_unfenced_accepted: bool) -> Iterator[str]:
    groups: dict[tuple[MoveVerdict, str, str], list[ObjectKey]] = {}
    for key, (verdict, reason) in found.queues.items():
        groups.setdefault((verdict, reason, key.vhost), []).append(key)
    for verdict in MoveVerdict:
        of_verdict = [(reason, keys) for (each, reason, _), keys in groups.items() if each is verdict]
        for reason, keys in of_verdict[:MOST_LINES]:
            yield output.line(output.paint(verdict, _COLOURS.get(verdict, "red")), f" {named(keys)}: {reason}")
        yield from more_lines(len(of_verdict) - MOST_LINES, verdict)
    counts = Counter(verdict for verdict, _ in found.queues.values())
    yield ", ".join(f"{counts[each]:,} {each}" for each in MoveVerdict if counts[each]) or "no queue is selected"
    if is_safe:
        accepted = ", if nobody comes back" if found.unfenced else ""
        yield output.line(_ANSWER, output.paint("yes", "green"), accepted)
        return
    yield output.line(_ANSWER, output.paint("no", "red"), ", because")
    reasons = found.reasons if is_unfenced_accepted else (*found.reasons, *found.unfenced)
    yield from (f"  {each}" for each in reasons[:MOST_LINES])
    yield from more_lines(len(reasons) - MOST_LINES, "reasons")
