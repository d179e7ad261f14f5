"""Links as a table that fits the terminal: the most severe first, ids and statuses always whole.

Long names are shortened where they don't differ, so that no two of them look alike.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

import typer

from agent.cli.options import Sort
from agent.cli.output import Ready, cut
from agent.cli.remote import name_of
from agent.core.text import age, counted, printable, waiting_text

Link = Mapping[str, Any]

_COLOURS: Final = {
    "invalid": "red",
    "backoff": "red",
    "stalled": "yellow",
    "blocked": "yellow",
    "starting": "cyan",
    "removing": "magenta",
    "stopping": "blue",
    "paused": "blue",
    "terminated": "blue",
    "standby": "blue",
    "running": "green",
}
SEVERITY: Final = tuple(_COLOURS)  # the most severe status first
_SPACE: Final = 2  # between columns
_CONNECTED: Final = ("stalled", "blocked")  # and yet nothing moves: of these it shows by itself that messages wait
_LEAST: Final = 8  # letters of a name that was shortened
_KEPT: Final = -1  # rank of columns that are never left out
_EXTRA: Final = 6  # from this rank on
ELLIPSIS: Final = "…"
_MOST_AROUND: Final = 5  # letters of a word

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Column:
    """The largest `rank` is left out first where room is short. Values of a column that `shrinks` may be shortened."""

    title: str
    value: Callable[[Link, float], str]
    rank: int = _KEPT
    right: bool = False
    shrinks: bool = False
    wide: bool = False


def _begin(link: Link) -> float:
    """A pause outlives the agent that shows it."""
    paused_at = (link.get("paused") or {}).get("at")
    return datetime.fromisoformat(str(paused_at or link["since"])).timestamp()


def _backlog(link: Link, _: float) -> str:
    """One that was last known some time ago has a ~, one that may be larger a +."""
    if link["backlog"] is not None:
        return f"{link['backlog']:,}" + ("" if link.get("backlog_is_exact", True) else "+")
    return "-" if link.get("backlog_last") is None else f"~{link['backlog_last']:,}"


def _rate(link: Link, _: float) -> str:
    rate = link.get("rate")
    if rate is None:
        return "-"
    return f"{rate:,.0f}/s" if rate >= 10 or rate == 0 else f"{rate:.1f}/s"


def _oldest(link: Link) -> float:
    """Seconds that messages wait, unconfirmed or not forwarded yet, as the page has it."""
    return max(float(link["oldest_unconfirmed_seconds"]), link.get("behind_seconds") or 0.0)


COLUMNS: Final = (
    Column("STATUS", lambda link, _: str(link["status"])),
    Column("ID", lambda link, _: str(link["id"])),
    Column("KIND", lambda link, _: str(link["kind"]), 6),
    Column("VHOST", lambda link, _: str(link["vhost"]), 5, shrinks=True),
    Column("NAME", lambda link, _: name_of(link), shrinks=True),
    Column("UPSTREAM", lambda link, _: str(link["upstream"] or link.get("source") or "-"), 3, shrinks=True),
    Column("BACKLOG", _backlog, 1, right=True),
    Column("RATE", _rate, 2, right=True),
    Column("AGE", lambda link, now: age(now - _begin(link)), 0, right=True),
    Column("FORWARDED", lambda link, _: f"{link['forwarded']:,}", 8, right=True),
    Column("OLDEST", lambda link, _: f"{_oldest(link):.1f}s", 7, right=True),
    Column("RECONNECTS", lambda link, _: str(link["reconnects"]), right=True, wide=True),
    Column("QUARANTINED", lambda link, _: f"{link.get('quarantined', 0):,}", right=True, wide=True),
    Column("PREFETCH", lambda link, _: str(link["prefetch"]), right=True, wide=True),
    Column("BINDINGS", lambda link, _: str(link["bindings"]), right=True, wide=True),
    Column("POLICY", lambda link, _: str(link["policy"] or "-"), wide=True),
    Column("URI", lambda link, _: str(link["uri"] or "-"), wide=True),
    Column("ERROR", lambda link, _: str(link["error"] or ""), 9),
)


def in_order(links: Iterable[Link], sort: Sort | None = None) -> list[Link]:
    """Incidents come before links that never worked, or have not for long; or the largest first by `sort`."""
    orders: Mapping[Sort | None, Callable[[Link], Any]] = {
        None: _trouble,
        "name": lambda link: (link["vhost"], name_of(link), link["upstream"]),
        "age": _begin,
        "backlog": lambda link: -(link["backlog"] or link.get("backlog_last") or 0),
        "oldest": lambda link: -_oldest(link),
    }
    return sorted(links, key=orders.get(sort, lambda link: -(link.get(sort) or 0)))


def _trouble(link: Link) -> tuple[int, int, str, str, str, str]:
    """The smallest for the worst."""
    urgency = 0 if link.get("incident") else 1 if link["status"] in _CONNECTED else 2
    return urgency, _severity(link["status"]), link["vhost"], link["kind"], name_of(link), link["upstream"]


def _severity(status: str) -> int:
    return SEVERITY.index(status) if status in SEVERITY else len(SEVERITY)


def render(
    links: Iterable[Link],
    *,
    now: float,
    width: int | None,
    height: int | None = None,
    wide: bool,
    sort: Sort | None = None,
) -> list[str]:
    """Lines: a summary, the heads of columns, the links. Without a `width` each link is one line, however long, and
    all columns are there; with one, errors are on a line of their own. More lines than `height` are left out."""
    ordered = in_order(links, sort)
    lines = [summary(ordered)] if width is None else textwrap.wrap(summary(ordered), max(1, width))
    if not ordered:
        return lines
    columns = [column for column in COLUMNS if (wide or not column.wide)]
    if width is not None and not wide:
        columns = columns[:-1]  # the error
    cells = [[_cell(column, link, now, width) for column in columns] for link in ordered]
    kept, widths = _fit(columns, cells, None if wide else width)
    _shorten(cells, [(at, size) for at, size in zip(kept, widths, strict=True) if columns[at].shrinks])
    lines.append(_line([columns[at].title for at in kept], [columns[at] for at in kept], widths))
    for number, (link, row) in enumerate(zip(ordered, cells, strict=True)):
        shown = _line([row[at] for at in kept], [columns[at] for at in kept], widths)
        own = [_painted(shown, str(link["status"]))]
        if width is not None and not wide and link["error"]:
            own.append(cut(f"  └ {printable(str(link['error']))}", width))
        if height is not None and len(lines) + len(own) >= height:
            more = f"… {len(ordered) - number:,} more: {_by_status(ordered[number:])}"
            return [*lines, more if width is None else cut(more, width)]
        lines += own
    return lines


def _cell(column: Column, link: Link, now: float, width: int | None) -> str:
    """Programs get numbers without commas."""
    text = printable(column.value(link, now))
    return text.replace(",", "") if width is None and column.right else text


def _shorten(cells: Sequence[list[str]], columns: Iterable[tuple[int, int]]) -> None:
    for at, width in columns:
        differs = differences(row[at] for row in cells)
        for row in cells:
            row[at] = shortened(row[at], width, differs[row[at]])


def summary(links: Sequence[Link]) -> str:
    known = [link["backlog"] is not None and link.get("backlog_is_exact", True) for link in links]
    waiting = sum(link["backlog"] or link.get("backlog_last") or 0 for link in links)
    rate = sum(link.get("rate") or 0.0 for link in links)
    if not links:
        return "no links"
    waits = waiting_text(waiting, is_exact=all(known))
    return f"{counted(len(links), 'link')}: {_by_status(links)}; {waits}; {rate:,.0f}/s"


def _by_status(links: Iterable[Link]) -> str:
    found = Counter(str(link["status"]) for link in links)
    return ", ".join(f"{found[status]:,} {printable(status)}" for status in sorted(found, key=_severity))


def _fit(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int | None) -> tuple[list[int], list[int]]:
    """The columns that are kept, and their widths."""
    natural = [max(len(column.title), *(len(row[at]) for row in cells)) for at, column in enumerate(columns)]
    kept = list(range(len(columns)))
    if width is None:
        return kept, natural
    least = [min(own, _LEAST) if column.shrinks else own for own, column in zip(natural, columns, strict=True)]

    def needed(sizes: Sequence[int]) -> int:
        return sum(sizes[at] for at in kept) + _SPACE * (len(kept) - 1)

    for sizes, lowest in ((natural, _EXTRA), (least, 0)):  # extra columns go before any name is shortened
        while needed(sizes) > width and (droppable := [at for at in kept if columns[at].rank >= lowest]):
            kept.remove(max(droppable, key=lambda at: columns[at].rank))
    fitted = list(natural)
    while needed(fitted) > width:
        shrinking = [at for at in kept if columns[at].shrinks and fitted[at] > least[at]]
        if not shrinking:
            break
        fitted[max(shrinking, key=lambda at: fitted[at])] -= 1
    return kept, [fitted[at] for at in kept]


def _line(values: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    cells = [
        cut(value, width).rjust(width) if column.right else cut(value, width).ljust(width)
        for value, column, width in zip(values, columns, widths, strict=True)
    ]
    return (" " * _SPACE).join(cells).rstrip()


def _painted(line: str, status: str) -> str:
    """The status stands first."""
    style = _COLOURS.get(status)
    return line if style is None else Ready(typer.style(status, fg=style) + line.removeprefix(status))


def differences(names: Iterable[str]) -> Mapping[str, Span]:
    """The part of each name that differs from the name most like it: the rest of both is the same."""
    ordered = sorted(set(names))
    found: dict[str, Span] = dict.fromkeys(ordered, (0, 0))
    for first, second in pairwise(ordered):
        begin = _common(first, second)
        end = _common(first[begin:][::-1], second[begin:][::-1])
        for name in (first, second):
            if begin >= found[name][0]:
                found[name] = begin, len(name) - end
    return {name: _word(name, span) for name, span in found.items()}


def _word(name: str, span: Span) -> Span:
    """Extends a part by the letters and digits around it: of 01 and 11 the same digit differs from their neighbours."""
    begin, end = span
    while begin > max(0, span[0] - _MOST_AROUND) and name[begin - 1].isalnum():
        begin -= 1
    while end < min(len(name), span[1] + _MOST_AROUND) and name[end].isalnum():
        end += 1
    return begin, end


def _common(first: str, second: str) -> int:
    """The length of the common beginning."""
    shorter = min(len(first), len(second))
    return next((at for at in range(shorter) if first[at] != second[at]), shorter)


def shortened(name: str, width: int, differs: Span) -> str:
    """Cuts out a piece beside the part that differs, and keeps most of the end, where names usually differ."""
    if len(name) <= width:
        return name
    kept = max(0, width - len(ELLIPSIS))
    begin, end = differs
    third = kept // 3
    for head in (third, kept - third, kept - (len(name) - begin), end):
        behind = head + len(name) - kept  # where the end that is kept begins
        if 0 <= head <= kept and (behind <= begin or head >= end):
            return name[:head] + ELLIPSIS + name[behind:]
    room = max(0, kept - len(ELLIPSIS))
    first = max(0, min(begin, len(name) - room) - (room - min(room, end - begin)) // 2)
    return ELLIPSIS + name[first : first + room] + ELLIPSIS
