"""The file that `migrate` commands read, and what they print, for people and for programs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.cli import output
from agent.core.addresses.secret import REDACTED
from agent.core.migration.difference import UNSAFE, MigrationAction, MigrationPlan, MigrationVerb
from agent.core.migration.objects import ObjectKey, ObjectKind
from agent.core.migration.releases import Objection, ObjectionKind
from agent.core.text import counted, listed

if TYPE_CHECKING:
    from agent.definitions.sources.load import Migration
    from agent.migration.copying import CopyAccount

MOST_ACTIONS: Final = 20
"""Of a kind, in text."""
MOST_LINES: Final = 50
"""Of a verdict, in text."""
_COLOURS: Final = {ObjectionKind.IGNORED: "white", ObjectionKind.TRAP: "yellow"}
_PLURALS: Final = {ObjectKind.POLICY: "policies"}


def load(file: Path) -> Migration:
    """The migration file, whose warnings are printed. Raises ConfigurationError."""
    from agent.definitions.sources.load import load_migration

    migration = load_migration(str(file), environment=os.environ)
    output.complain(*(str(problem) for problem in migration.warnings))
    return migration


def plan_lines(plan: MigrationPlan, *, with_actions: bool = True) -> Iterator[str]:
    """`with_actions`: not where there is no target that could lack anything."""
    if with_actions:
        yield from _action_lines(plan.actions)
    yield from _objection_lines(plan.objections)
    verdicts = Counter(each.verdict for each in plan.objections)
    counts = ", ".join(f"{verdicts[each]:,} {each}" for each in ObjectionKind if verdicts[each])
    if with_actions:
        of_verbs = ((verb, [each for each in plan.actions if each.verb is verb]) for verb in MigrationVerb)
        changes = [f"{_counts(each.key.kind for each in found)} to {verb}" for verb, found in of_verbs if found]
        found = [f"{_counts(plan.found)} found as wanted"] if plan.found else []
        yield "; ".join([*(changes or ["nothing to do"]), *found, *([counts] if counts else [])])
    else:
        yield f"{_counts(key.kind for key in plan.wanted)}: {counts or 'nothing refused'}"


def _counts(kinds: Iterable[ObjectKind] | Mapping[ObjectKind, int]) -> str:
    counts = Counter(kinds)
    return ", ".join(counted(counts[kind], kind, _PLURALS.get(kind, "")) for kind in ObjectKind if counts.get(kind))


def _action_lines(actions: Sequence[MigrationAction]) -> Iterator[str]:
    shown: Counter[ObjectKind] = Counter()
    for action in actions:
        shown[action.key.kind] += 1
        if shown[action.key.kind] <= MOST_ACTIONS:
            mark = output.paint("+", "green") if action.verb is MigrationVerb.CREATE else output.paint("~", "yellow")
            yield output.line("  ", mark, f" {action.verb} {action.key}")
    for kind, number in shown.items():
        yield from more_lines(number - MOST_ACTIONS, _PLURALS.get(kind, f"{kind}s"))


def _objection_lines(objections: Sequence[Objection]) -> Iterator[str]:
    """One line for all objects of a kind and vhost with the same."""
    groups: dict[tuple[ObjectionKind, str, str, ObjectKind, str], list[ObjectKey]] = {}
    for each in objections:
        groups.setdefault((each.verdict, each.reason, each.advice, each.key.kind, each.key.vhost), []).append(each.key)
    for verdict in ObjectionKind:
        of_verdict = [(group, keys) for group, keys in groups.items() if group[0] is verdict]
        for (_, reason, advice, *_), keys in of_verdict[:MOST_LINES]:
            yield output.line(output.paint(verdict, _COLOURS.get(verdict, "red")), f" {named(keys)}: {reason}")
            yield f"  → {advice}"
        yield from more_lines(len(of_verdict) - MOST_LINES, verdict)


def more_lines(number: int, of: str) -> Iterator[str]:
    if number > 0:
        yield f"{number:,} more {of} (--format json shows all)"


def named(keys: Sequence[ObjectKey]) -> str:
    first = keys[0]
    if len(keys) == 1 or first.kind in {ObjectKind.VHOST, ObjectKind.BINDING}:
        return listed([str(key) for key in keys], separator="; ")
    names = listed([repr(key.name) for key in keys])
    return f"{_PLURALS.get(first.kind, f'{first.kind}s')} {names} in vhost {first.vhost!r}"


def masked(text: str) -> str:
    """Without logins of URIs, which arguments and policies may hold; not by a regular expression, as it may be long."""
    before, *parts = text.split("://")
    for part in parts:
        word = part.split(maxsplit=1)[0] if part and not part[0].isspace() else ""
        login, at, _ = word.rpartition("@")
        before += f"://{REDACTED}{part[len(login) :]}" if at else f"://{part}"
    return before


def all_masked(value: Any) -> Any:
    match value:
        case str():
            return masked(value)
        case Mapping():
            return {masked(name): all_masked(each) for name, each in value.items()}
        case list() | tuple():
            return [all_masked(each) for each in value]
    return value


def plan_as_json(plan: MigrationPlan, sides: Mapping[str, Any]) -> Any:
    found = {
        "safe": plan.is_safe,
        **sides,
        "actions": [{"verb": each.verb, **key_as_json(each.key), "body": each.body} for each in plan.actions],
        "found": plan.found,
        "objections": [
            {"verdict": each.verdict, **key_as_json(each.key), "reason": each.reason, "advice": each.advice}
            for each in plan.objections
        ],
    }
    return all_masked(found)


def key_as_json(key: ObjectKey) -> dict[str, Any]:
    """A binding by all that makes it one, others by their names."""
    found = asdict(key)
    return found if key.kind is ObjectKind.BINDING else {name: found[name] for name in ("kind", "vhost", "name")}


def account_lines(plan: MigrationPlan, account: CopyAccount) -> Iterator[str]:
    for key, reason in list(account.left.items())[:MOST_LINES]:
        yield output.line(output.paint("left", "red"), f" {key}: {reason}")
    yield from more_lines(len(account.left) - MOST_LINES, "left")
    differing = [str(each.key) for each in plan.objections if each.verdict is ObjectionKind.DIFFERS]
    if differing:
        yield output.line(output.paint("differs", "red"), f" at the target, left as it is: {listed(differing, 5)}")
    copied = f"copied {_counts(account.done)}" if account.done.total() else "copied nothing"
    found = f"; found {_counts(plan.found)}" if plan.found else ""
    left = f"; left {len(account.left):,}" if account.left else ""
    yield f"{copied}{found}{left}"


def account_as_json(plan: MigrationPlan, account: CopyAccount) -> Any:
    found = {
        "complete": is_complete(plan, account),
        "copied": account.done,
        "found": plan.found,
        "left": [{**key_as_json(key), "reason": reason} for key, reason in account.left.items()],
        "differs": [key_as_json(each.key) for each in plan.objections if each.verdict is ObjectionKind.DIFFERS],
    }
    return all_masked(found)


def is_complete(plan: MigrationPlan, account: CopyAccount) -> bool:
    return not account.left and not any(each.verdict is ObjectionKind.DIFFERS for each in plan.objections)


def warnings_text(plan: MigrationPlan) -> str | None:
    """The number of things to know that a copy doesn't repeat, in words; None if there are none."""
    others = sum(each.verdict is not ObjectionKind.DIFFERS for each in plan.objections)
    unsafe = sum(each.verdict in UNSAFE - {ObjectionKind.DIFFERS} for each in plan.objections)
    if not others:
        return None
    return f"{counted(others, 'thing')} to know, {unsafe:,} of them refused as they are at the source: see migrate plan"
