"""Numbers, times and links as short readable text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

from agent.pipeline.findings.model import LinkIdentity, ReportFindings
from agent.pipeline.page.markup import Markup, element, join
from agent.pipeline.window import Bounds, instant, micros

NOTHING: Final = "\N{EN DASH}"
UNREACHED: Final = "not reached yet"
TO: Final = "\N{EN DASH}"
_UNITS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
HARD: Final = "\N{NO-BREAK SPACE}"
"""Within a number and its unit, which must not be on two lines."""
_LARGE: Final = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
_NAME: Final = 60
_EXCHANGE, _SHOVEL = "exchange", "shovel"  # as the export names kinds

_DAY: Final = timedelta(days=1)
_MONTH: Final = timedelta(days=30)
_STEPS: Final = (
    *(timedelta(minutes=minutes) for minutes in (1, 5, 10, 15, 30, 60, 120, 180, 360, 720)),
    *(timedelta(days=days) for days in (1, 2, 5, 7, 14)),
    *(_MONTH * months for months in (1, 2, 3, 6, 12, 24, 60, 120)),
)


def duration(seconds: float) -> str:
    """A duration in its two largest relevant units: `2 h 14 min`."""
    if 0 < seconds < 0.1:
        return f"{1000 * seconds:.2g}{HARD}ms"
    if seconds < 10:
        return f"{seconds:.3g}{HARD}s"
    left, parts = round(seconds), list[tuple[int, str]]()
    for unit, size in _UNITS:
        if left >= size or parts:
            parts.append((left // size, unit))
            left %= size
        if len(parts) == 2:
            break
    return HARD.join(f"{number}{HARD}{unit}" for number, unit in parts if number)


def percent(value: float | None) -> str:
    """A percentage, never rounded up to 100: a failure of a second must be visible."""
    if value is None:
        return NOTHING
    places = 0 if value in (0.0, 100.0) else 1 if value < 99 else 2 if value < 99.95 else 3
    return f"{_floor(value, places):.{places}f}{HARD}%"


def link_hours(seconds: float) -> str:
    """The time of several links together; as plain time it would be read as a part of the window."""
    hours = seconds / 3600
    if 0 < hours < 0.01:
        return "<0.01"
    return f"{hours:.2g}" if hours < 10 else count(hours)


def share(part: float, whole: float) -> str:
    """A share as a percentage, never rounded down to 0."""
    percents = 100.0 * part / whole if whole else 0.0
    if 0 < percents < 0.001:
        return f"<0.001{HARD}%"
    return f"{percents:.3f}{HARD}%" if 0 < percents < 1 else f"{percents:.3g}{HARD}%"


def brief_percent(value: float | None) -> str:
    """A percentage for narrow columns, without the sign."""
    if value is None:
        return ""
    return f"{_floor(value, 1):.1f}" if 99 <= value < 100 else f"{int(value)}"


def _floor(value: float, places: int) -> float:
    shift: int = 10**places
    return int(value * shift + 1e-6) / shift


def count(number: float) -> str:
    """`12 345`, and beyond that `1.23 M`; the space does not break."""
    for unit, size in _LARGE:
        # What would be rounded up to a thousand is one of the next unit.
        if number >= 0.9995 * size and number >= 100_000:
            return f"{_three(number / size)}{HARD}{unit}"
    return exact(number)


def rate(value: float) -> str:
    """A burn rate."""
    return "<0.01" if 0 < value < 0.01 else _three(value)


def days(value: float) -> str:
    return "<0.01" if 0 < value < 0.01 else f"{value:.2g}" if value < 10 else exact(value)


def _three(value: float) -> str:
    """A number with three digits, never as a power of ten."""
    return f"{value:.3g}" if value < 999.5 else exact(value)


def exact(number: float) -> str:
    return f"{number:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def plural(number: int, word: str) -> str:
    return f"{count(number)} {noun(number, word)}"


def noun(number: int, word: str) -> str:
    return word if number == 1 else f"{word}s"


@dataclass(frozen=True, slots=True)
class Calendar:
    """Instants in the local time of a zone."""

    zone: ZoneInfo

    def at(self, moment: int) -> datetime:
        return instant(moment).astimezone(self.zone)

    def day_and_time(self, moment: int) -> str:
        at = self.at(moment)
        return f"{at.day} {at:%b %H:%M}"

    def date_and_time(self, moment: int) -> str:
        at = self.at(moment)
        return f"{at.day} {at:%b %Y %H:%M %Z}"

    def span(self, span: Bounds) -> str:
        """`3 Nov 14:02` to `14:31`; the day is repeated only if it differs, seconds are shown for short spans."""
        start, end = self.at(span.start), self.at(span.end)
        clock = "%H:%M:%S" if span.seconds < 120 else "%H:%M"
        until = f"{end:{clock}}" if start.date() == end.date() else f"{end.day} {end:%b} {end:{clock}}"
        return f"{start.day} {start:%b} {start:{clock}}{TO}{until}"

    def ticks(self, of: Bounds, most: int) -> list[tuple[int, str]]:
        """At most `most` round moments of local time within a span, with their names."""
        found = ([*islice(self._round(of, step), most + 1)] for step in _STEPS)
        return next((ticks for ticks in found if len(ticks) <= most), [])

    def _round(self, of: Bounds, step: timedelta) -> Iterator[tuple[int, str]]:
        """Counted from a midnight, or in whole months from a January."""
        start, end = (self.at(moment).replace(tzinfo=None) for moment in (of.start, of.end))
        at, months = start.replace(hour=0, minute=0, second=0, microsecond=0), step // _MONTH
        at = at.replace(month=1, day=1) if months else at
        while at <= end:
            if at >= start:
                name = f"{at:%b %Y}" if months else f"{at.day} {at:%b}" if step >= _DAY else f"{at:%H:%M}"
                yield micros(at.replace(tzinfo=self.zone)), name
            years, month = divmod(at.month - 1 + months, 12)
            at = at.replace(year=at.year + years, month=month + 1) if months else at + step


def shorten(text: str, letters: int = _NAME) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def name(text: str | None, letters: int = _NAME) -> Markup:
    """A name from outside, in any script; a tooltip has the complete name."""
    if not text:
        return element("span", "no name" if text is None else "“”", class_="muted")
    return element("bdi", shorten(text, letters), title=text if len(text) > letters else None)


def cluster(text: str | None, letters: int = _NAME) -> Markup:
    return name(text, letters) if text else element("span", UNREACHED)


def link(identity: LinkIdentity) -> Markup:
    """`orders from eu-1 to here`, and its vhost if it is not the default one; most links are of exchanges, so only
    other kinds are named: `queue orders from …`, and `shovel drain to here`, which has no upstream."""
    kind = join(name(identity.kind), " ") if identity.kind not in (None, _EXCHANGE) else None
    origin = identity.upstream_cluster or identity.upstream
    start = None if identity.kind == _SHOVEL and not origin else join(" from ", name(origin))
    vhost = join(" in ", name(identity.vhost)) if identity.vhost not in (None, "/") else None
    ends = join(start, toward(identity.cluster))
    beside = element("span", ends, vhost, class_="beside")
    return join(kind, element("span", name(identity.name), class_="link"), beside)


def toward(cluster_name: str | None, letters: int = _NAME) -> Markup | None:
    """Adds the cluster, because links of several clusters may have the same name."""
    return join(" to ", name(cluster_name, letters)) if cluster_name else None


def anchor(identity: LinkIdentity) -> str:
    """The id of a link's timeline; names may hold anything."""
    return f"link-{sha256(repr(identity.key).encode()).hexdigest()[:12]}"


def linked(identity: LinkIdentity, findings: ReportFindings) -> Markup:
    """Leads to the link's timeline, if it has one."""
    is_drawn = identity in findings.timelines
    return element("a", link(identity), href=f"#{anchor(identity)}") if is_drawn else link(identity)


def why(reason: str | None, error: str | None) -> str:
    """The agent's error, or else the name of the reason."""
    return shorten(error, 160) if error else (reason or "no reason reported").replace("_", " ")
