"""`status`: one screen about a running agent, with an exit status that monitoring plug-ins understand; and `ack`."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from agent.cli import output
from agent.cli.remote import Remote, RemoteError, TokenError, myself
from agent.core.links.lifecycle import Level
from agent.core.text import counted, printable

FINE: Final = 0
DEGRADED: Final = 1
DOWN: Final = 2
UNKNOWN: Final = 3  # as monitoring plug-ins have it
_EXIT: Final = {Level.FINE: FINE, Level.STARTING: DEGRADED, Level.DEGRADED: DEGRADED, Level.DOWN: DOWN}
_COLOURS: Final = {Level.FINE: "green", Level.STARTING: "yellow", Level.DEGRADED: "yellow", Level.DOWN: "red"}
_NO_TROUBLE: Final = (Level.FINE, Level.STARTING)
ASK_EVERY: Final = 1.0  # seconds, while it waits until all is fine
MOST_CAUSES: Final = 10
MOST_PROBLEMS: Final = 5
MOST_ROWS: Final = 4  # of the verdict
MOST_NAMED: Final = 3  # links of a cause: an agent names no more
MOST_ON_A_SCREEN: Final = 2  # of problems, and of definitions that aren't run


def wait_until_fine(
    remote: Remote,
    *,
    timeout: float,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """For so many seconds at most; an agent that doesn't answer may not have started yet."""
    end = now() + timeout
    while not _is_settled(remote) and now() + ASK_EVERY <= end:
        sleep(ASK_EVERY)


def _is_settled(remote: Remote) -> bool:
    try:
        return _level(remote.overview(), remote.causes()) is Level.FINE
    except TokenError:
        return True  # waiting brings none
    except RemoteError:
        return False


def show_status(remote: Remote, form: str) -> int:
    status, shown = _shown(remote, form)
    output.say(shown)
    return status


def acknowledge(remote: Remote, named: str, *, for_: float | None, reason: str, undo: bool, as_json: bool) -> bool:
    """`named` is the id of a cause, or the beginning of one that no other has. Returns False where there is none."""
    about = {"by": myself(), "reason": reason} | ({} if for_ is None else {"for": for_})
    ids = [str(each["id"]) for each in remote.causes()["causes"] if str(each.get("id", "")).startswith(named)]
    found = remote.acknowledge(ids[0], None if undo else about) if len(ids) == 1 else None
    if found is None:
        why = f"{len(ids)} causes begin with" if len(ids) > 1 else "no cause has the id"
        output.complain(f"federation-agent: {remote.where}: {why} {named!r}; `status` lists them")
    elif as_json:
        output.say_json(found)
    else:
        known = found["acknowledged"]
        output.say(f"{ids[0]} {known['text'] if known else 'acknowledged by nobody'}: {_head(found)}")
    return found is not None


def watch_status(remote: Remote, form: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Until interrupted, or until the output is closed; an agent that doesn't answer is down."""
    with suppress(KeyboardInterrupt):
        if form in {"json", "yaml"} or not sys.stdout.isatty():
            while output.say(_shown(remote, form)[1]):
                sleep(ASK_EVERY)
            return
        from rich.live import Live  # not for the others, which monitoring runs often
        from rich.text import Text

        with Live(Text(""), screen=True, auto_refresh=False) as live:
            while True:
                live.update(Text.from_ansi(_shown(remote, form)[1]), refresh=True)
                sleep(ASK_EVERY)


def _shown(remote: Remote, form: str) -> tuple[int, output.Ready]:
    """The exit status, and the text or data."""
    try:
        overview, causes = remote.overview(), remote.causes()
    except RemoteError as error:
        word, status = ("unknown", UNKNOWN) if isinstance(error, TokenError) else (str(Level.DOWN), DOWN)
        head = output.line(output.paint(word.upper(), "red"), f": {error}")
        return status, output.as_data({"level": word, "verdict": str(error)}, form) or head
    level = _level(overview, causes)
    if data := output.as_data({**causes, "level": str(level), "agent": overview}, form):
        return _EXIT[level], data
    verdict = f"{level.upper()}: {_sentence(overview, causes)}"
    size = shutil.get_terminal_size() if sys.stdout.isatty() else None
    first, *rest = screen(verdict, overview, causes, size)
    head = output.line(output.paint(level.upper(), _COLOURS[level]), first.removeprefix(level.upper()))
    return _EXIT[level], output.Ready("\n".join([head, *map(output.line, rest)]))


def _level(overview: Mapping[str, Any], causes: Mapping[str, Any]) -> Level:
    """An agent that can't read its broker is degraded, and down if it never could. Messages in quarantine wait for a
    person, and nobody receives them until one comes."""
    level = Level(causes["level"])
    if level is Level.DOWN or not overview["ready"]:
        return Level.DOWN
    is_whole = not (overview["problems"] or overview.get("not_run") or overview.get("unread") or _quarantined(overview))
    return level if is_whole else Level.DEGRADED


def _sentence(overview: Mapping[str, Any], causes: Mapping[str, Any]) -> str:
    if overview.get("unread"):
        return f"the agent can't read its broker: {overview['unread']}"
    if not overview["ready"] and overview["problems"]:
        return f"no definitions are in force: {overview['problems'][0]}"
    if not overview["ready"]:
        return "the agent has not read its broker's definitions yet"
    not_run = len(overview.get("not_run", ()))
    is_well = causes["level"] in _NO_TROUBLE
    if is_well and overview["problems"]:
        return f"definitions are not in force: {overview['problems'][0]}"
    if is_well and not_run:
        return f"{counted(not_run, 'definition')} not run; {causes['verdict']}"
    if is_well and _quarantined(overview):
        put = "" if overview["quarantine"]["messages"] else " put"
        return f"{counted(_quarantined(overview), 'message')}{put} in quarantine; {causes['verdict']}"
    return str(causes["verdict"])


def screen(
    verdict: str, overview: Mapping[str, Any], causes: Mapping[str, Any], size: os.terminal_size | None
) -> list[str]:
    """All there is for a program. A terminal shows as much as fits it, the most important first: the verdict would
    scroll away."""
    blocks = [list(_cause(each)) for each in causes["causes"][:MOST_CAUSES]]
    omitted = len(causes["causes"]) - len(blocks)
    if size is None:
        listed = [*_problems(overview, MOST_PROBLEMS), *(["causes"] if blocks else [])]
        found = [verdict, *_facts(overview, causes), *listed, *chain.from_iterable(blocks)]
        return [*found, _more(omitted)] if omitted else found
    short = [*_facts(overview, causes), *_problems(overview, MOST_ON_A_SCREEN), *(["causes"] if blocks else [])]
    head = [output.cut(verdict, MOST_ROWS * size.columns), *(output.cut(line, size.columns) for line in short)]
    room = size.lines - 1 - sum(_rows(line, size.columns) for line in head)  # a line is for the prompt
    blocks = [[output.cut(line, 2 * size.columns) for line in block[:-1]] + block[-1:] for block in blocks]
    return [*head, *_fitted(blocks, omitted, room=room, width=size.columns)]


def _facts(overview: Mapping[str, Any], causes: Mapping[str, Any]) -> Iterator[str]:
    links = {status: number for status, number in overview["links"].items() if number}
    yield f"agent       {overview['agent']} (group {overview['group']}, version {overview['version']})"
    yield f"downstream  {overview['cluster'] or 'not reached yet'}"
    yield f"links       {', '.join(f'{number:,} {status}' for status, number in links.items()) or 'none'}"
    yield f"waiting     {_waiting(causes['waiting'])}"
    quarantine = _quarantine_text(overview)
    if quarantine:
        yield f"quarantine  {quarantine}: federation-agent quarantine list -c FILE"
    if standby := overview.get("standby"):
        why = "".join(f": {each}" for each in standby["why_not"][:1])
        yield f"standby     {'' if standby['in_step'] else 'not '}in step with upstream {standby['of']!r}{why}"
    if move := overview.get("move"):
        queues, broken = counted(move["queues"], "queue"), counted(move["not_working"], "link")
        left = _waiting({"messages": move["waiting"], "is_exact": move["waiting_is_exact"]})
        yield f"move        of {queues}, {broken} not working; {left} at the source"


def _quarantined(overview: Mapping[str, Any]) -> int:
    """The messages that wait in quarantines, or were put there where the agent may not look; it may be older than this
    command."""
    found = overview.get("quarantine") or {}
    put = 0 if found.get("is_exact", True) else found.get("quarantined", 0)
    return int(found.get("messages") or found.get("unseen", put))


def _quarantine_text(overview: Mapping[str, Any]) -> str:
    """Empty where none is there, as far as is known."""
    if not _quarantined(overview):
        return ""
    found, count = overview["quarantine"], counted(_quarantined(overview), "message")
    if not found["messages"]:
        return f"not known; {count} put there since the agent started"
    return f"{'' if found['is_exact'] else 'at least '}{count}"


def _waiting(found: Mapping[str, Any]) -> str:
    messages, is_exact = found["messages"], found["is_exact"]
    if not messages:
        return "no messages" if is_exact else "not known"
    return f"{'' if is_exact else 'at least '}{counted(messages, 'message')}"


def _problems(overview: Mapping[str, Any], most: int) -> Iterator[str]:
    not_run = overview.get("not_run", ())
    if "not_run_details" in overview:  # an agent may be older; a narrow terminal cuts off the place
        not_run = [f"{each['message']} ({each['place']})" for each in overview["not_run_details"]]
    for title, texts in (("problem   ", overview["problems"]), ("not run   ", not_run)):
        yield from (f"{title}  {text}" for text in texts[:most])
        if len(texts) > most:
            yield f"{title}  {len(texts) - most:,} more: --format json has all"


def _cause(cause: Mapping[str, Any]) -> Iterator[str]:
    named = f"{cause['id']}  " if "id" in cause else ""  # an agent may be older than this command
    yield f"  {named}{_head(cause)}{_named(cause)}"
    if cause.get("acknowledged"):
        yield f"    {cause['acknowledged']['text']}"
    if cause["error"]:
        yield f"    {cause['error']}"
    yield f"    do: {cause['advice']}"


def _head(cause: Mapping[str, Any]) -> str:
    return f"{cause['broker']} ({cause['side']}): {cause['headline']}"


def _named(cause: Mapping[str, Any]) -> str:
    """Some of its links, which distinguish causes that read the same; an agent may be older than this command."""
    names = cause.get("names")
    if not names:
        return ""
    has_more = len(names) >= MOST_NAMED and len(cause["links"]) > len(names)
    return f": {', '.join(names)}{', …' if has_more else ''}"


def _fitted(blocks: Sequence[Sequence[str]], omitted: int, *, room: int, width: int) -> list[str]:
    """The first cause with what to do, as many others as fit with it, and the rest in a line each."""
    if not omitted and sum(_height(block, width) for block in blocks) <= room:
        return list(chain.from_iterable(blocks))
    found: list[str] = []
    left = room - 1  # a line says what is omitted
    for at, block in enumerate(blocks):
        later = 0 if at == 0 else len(blocks) - at - 1
        forms = (block, [block[0], block[-1]], [output.cut(block[0], width)])
        needed = (later, later, 0)
        shown = next(
            (form for form, more in zip(forms, needed, strict=True) if _height(form, width) + more <= left), []
        )
        found += shown
        left -= _height(shown, width)
        omitted += not shown
    return [*found, output.cut(_more(omitted), width)]


def _more(omitted: int) -> str:
    count = f"and {counted(omitted, 'more cause')}: " if omitted else "what to do about all: "
    return f"  {count}see the page or `status --format json`"


def _height(lines: Sequence[str], width: int) -> int:
    return sum(_rows(line, width) for line in lines)


def _rows(line: str, width: int) -> int:
    """A long line isn't broken here, so that commands in it can be copied."""
    return max(1, -(-len(printable(line)) // max(1, width)))
