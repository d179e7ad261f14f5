"""`status`: one screen about a running agent, with an exit status that monitoring plug-ins understand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agent.cli import output
from agent.cli.remote import Remote, RemoteError
from agent.core.status.causes import Level

FINE: Final = 0
DEGRADED: Final = 1
DOWN: Final = 2
_EXIT: Final = {Level.FINE: FINE, Level.DEGRADED: DEGRADED, Level.DOWN: DOWN}
_COLOURS: Final = {Level.FINE: "green", Level.DEGRADED: "yellow", Level.DOWN: "red"}
MOST_CAUSES: Final = 10
MOST_PROBLEMS: Final = 5


def show_status(remote: Remote, *, as_json: bool) -> int:
    try:
        overview, causes = remote.overview(), remote.causes()
    except RemoteError as error:
        if as_json:
            output.say_json({"level": Level.DOWN, "verdict": str(error)})
        else:
            output.say(output.paint(Level.DOWN.upper(), "red"), f": {error}")
        return DOWN
    level = _level(overview, causes)
    if as_json:
        output.say_json({**causes, "level": level, "agent": overview})
    else:
        output.say(output.paint(level.upper(), _COLOURS[level]), f": {_sentence(overview, causes)}")
        for line in lines(overview, causes):
            output.say(line)
    return _EXIT[level]


def _level(overview: Mapping[str, Any], causes: Mapping[str, Any]) -> Level:
    """An agent that can't read its broker is degraded, and down if it never could."""
    level = Level(causes["level"])
    if level is Level.DOWN or not overview["ready"]:
        return Level.DOWN
    is_whole = not (overview["problems"] or overview.get("not_run") or overview.get("unread"))
    return level if is_whole else Level.DEGRADED


def _sentence(overview: Mapping[str, Any], causes: Mapping[str, Any]) -> str:
    if overview.get("unread"):
        return f"the agent can't read its broker: {overview['unread']}"
    if not overview["ready"]:
        return "the agent has not read its broker's definitions yet"
    not_run = len(overview.get("not_run", ()))
    if causes["level"] == Level.FINE and overview["problems"]:
        return f"definitions are not in force: {overview['problems'][0]}"
    if causes["level"] == Level.FINE and not_run:
        return f"{not_run} definition{'' if not_run == 1 else 's'} not run; {causes['verdict']}"
    return str(causes["verdict"])


def lines(overview: Mapping[str, Any], causes: Mapping[str, Any]) -> Iterator[str]:
    links = {status: number for status, number in overview["links"].items() if number}
    waiting = causes["waiting"]
    yield f"agent       {overview['agent']} (group {overview['group']}, version {overview['version']})"
    yield f"downstream  {overview['cluster'] or 'not reached yet'}"
    yield f"links       {', '.join(f'{number} {status}' for status, number in links.items()) or 'none'}"
    yield f"waiting     {'' if waiting['is_exact'] else 'at least '}{waiting['messages']} messages"
    yield from _listed("problem   ", overview["problems"])
    yield from _listed("not run   ", overview.get("not_run", []))
    if causes["causes"]:
        yield "causes"
    for cause in causes["causes"][:MOST_CAUSES]:
        yield f"  {cause['broker']} ({cause['side']}): {cause['headline']}"
        if cause["error"]:
            yield f"    {cause['error']}"
        yield f"    do: {cause['advice']}"
    if len(causes["causes"]) > MOST_CAUSES:
        yield f"  and {len(causes['causes']) - MOST_CAUSES} more: --format json has all"


def _listed(title: str, texts: Sequence[str]) -> Iterator[str]:
    yield from (f"{title}  {text}" for text in texts[:MOST_PROBLEMS])
    if len(texts) > MOST_PROBLEMS:
        yield f"{title}  {len(texts) - MOST_PROBLEMS} more: --format json has all"
