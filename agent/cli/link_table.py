"""Links as a table that fits the terminal: the most severe first, ids and statuses always whole."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import typer

from agent.cli.link_names import name_of
from agent.cli.options import Sort
from agent.cli.output import Ready
from agent.cli.shortening import differences, shortened
from agent.core.text.printable import printable
from agent.core.text.quantities import age, counted, waiting_text

Link = Mapping[str, Any]

SEVERITY: Final = (
    "invalid", "backoff", "stalled", "blocked", "starting", "removing", "stopping", "paused", "terminated", "standby",
    "running",
)  # fmt: skip
_STYLES: Final = {
    "running": "green",
    "starting": "cyan",
    "blocked": "yellow",
    "stalled": "yellow",
    "standby": "blue",
    "paused": "blue",
    "terminated": "blue",
    "stopping": "blue",
    "removing": "magenta",
    "backoff": "red",
    "invalid": "red",
}
_SPACE: Final = 2  # between columns
_CONNECTED: Final = ("stalled", "blocked")  # and yet nothing moves: of these it shows by itself that messages wait
_LEAST: Final = 8  # letters of a name that was shortened
_KEPT: Final = -1  # rank of columns that are never left out
_EXTRA: Final = 6  # from this rank on


@dataclass(frozen=True, slots=True)
class Column:
    """`rank` says which is left out first where there is no room: the largest. `shrinks`: whether its values may be
    shortened."""

    title: str
    value: Callable[[Link, float], str]
    rank: int = _KEPT
    right: bool = False
    shrinks: bool = False
    wide: bool = False


def _since(link: Link, now: float) -> str:
    return age(now - _begin(link))


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
    Column("AGE", _since, 0, right=True),
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
    """What is an incident now comes before what never worked, or has not for long; or the largest first by `sort`."""
    match sort:
        case None:
            return _by_trouble(links)
        case "name":
            return sorted(links, key=lambda link: (link["vhost"], name_of(link), link["upstream"]))
        case "age":
            return sorted(links, key=_begin)
        case "backlog":
            return sorted(links, key=lambda link: -(link["backlog"] or link.get("backlog_last") or 0))
        case "oldest":
            return sorted(links, key=_oldest, reverse=True)
        case _:
            return sorted(links, key=lambda link: -(link.get(sort) or 0))


def _by_trouble(links: Iterable[Link]) -> list[Link]:
    return sorted(
        links,
        key=lambda link: (
            _urgency(link), _severity(link), link["vhost"], link["kind"], name_of(link), link["upstream"],
        ),
    )  # fmt: skip


def _urgency(link: Link) -> int:
    if link.get("incident"):
        return 0
    return 1 if link["status"] in _CONNECTED else 2


def _severity(link: Link) -> int:
    return SEVERITY.index(link["status"]) if link["status"] in SEVERITY else len(SEVERITY)


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
    lines = _wrapped(summary(ordered), width)
    if not ordered:
        return lines
    columns = [column for column in COLUMNS if (wide or not column.wide)]
    if width is not None and not wide:
        columns = columns[:-1]  # the error
    cells = [[_cell(column, link, now, width) for column in columns] for link in ordered]
    kept, widths = _fit(columns, cells, None if wide else width)
    _shorten(cells, [(at, size) for at, size in zip(kept, widths, strict=True) if columns[at].shrinks])
    lines.append(_line([columns[at].title for at in kept], [columns[at] for at in kept], widths))
    before = len(lines)
    for link, row in zip(ordered, cells, strict=True):
        shown = _line([row[at] for at in kept], [columns[at] for at in kept], widths)
        own = [_painted(shown, str(link["status"]))]
        if width is not None and not wide and link["error"]:
            own.append(_cut(f"  └ {printable(str(link['error']))}", width))
        if height is not None and len(lines) + len(own) >= height:
            shown_links = _shown(lines[before:])
            more = f"… {len(ordered) - shown_links:,} more: {_by_status(ordered[shown_links:])}"
            return [*lines, more if width is None else _cut(more, width)]
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


def _shown(lines: Sequence[str]) -> int:
    """How many links these lines show."""
    return sum(not line.startswith("  └ ") for line in lines)


def _wrapped(text: str, width: int | None) -> list[str]:
    return [text] if width is None else textwrap.wrap(text, max(1, width))


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
    ordered = sorted(found, key=lambda status: SEVERITY.index(status) if status in SEVERITY else len(SEVERITY))
    return ", ".join(f"{found[status]:,} {printable(status)}" for status in ordered)


def _fit(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int | None) -> tuple[list[int], list[int]]:
    """Which columns are kept, and how wide each is."""
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
        _cut(value, width).rjust(width) if column.right else _cut(value, width).ljust(width)
        for value, column, width in zip(values, columns, widths, strict=True)
    ]
    return (" " * _SPACE).join(cells).rstrip()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(1, width - 1)] + "…"


def _painted(line: str, status: str) -> str:
    """The status stands first."""
    style = _STYLES.get(status)
    return line if style is None else Ready(typer.style(status, fg=style) + line.removeprefix(status))
