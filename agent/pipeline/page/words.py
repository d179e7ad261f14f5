"""Numbers, times and links as short readable text."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from agent.pipeline.findings.model import Span, Which
from agent.pipeline.page.markup import Markup, element, join
from agent.pipeline.tables.periods import EPOCH

NOTHING: Final = "\N{EN DASH}"
UNREACHED: Final = "not reached yet"
TO: Final = "\N{EN DASH}"
_UNITS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_LARGE: Final = (("G", 1e9), ("M", 1e6), ("k", 1e3))
_NAME: Final = 60
EXCHANGE, SHOVEL = "exchange", "shovel"  # as the export names kinds


def duration(seconds: float) -> str:
    """In the two largest relevant units: `2 h 14 min`."""
    if seconds < 10:
        return f"{seconds:.3g} s"
    left, parts = round(seconds), list[tuple[int, str]]()
    for unit, size in _UNITS:
        if left >= size or (parts and unit == _next_unit(parts[0][1])):
            parts.append((left // size, unit))
            left %= size
        if len(parts) == 2:
            break
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def _next_unit(unit: str) -> str:
    names = [name for name, _ in _UNITS]
    return names[min(names.index(unit) + 1, len(names) - 1)]


def percent(value: float | None) -> str:
    """Never rounded up to 100: a failure of a second must be visible."""
    if value is None:
        return NOTHING
    places = 0 if value in (0.0, 100.0) else 1 if value < 99 else 2 if value < 99.95 else 3
    return f"{_floor(value, places):.{places}f} %"


def brief_percent(value: float | None) -> str:
    """For narrow columns, without the sign."""
    if value is None:
        return ""
    return f"{_floor(value, 1):.1f}" if 99 <= value < 100 else f"{int(value)}"


def _floor(value: float, places: int) -> float:
    shift: int = 10**places
    return int(value * shift + 1e-6) / shift


def count(number: float) -> str:
    """`12 345`, and beyond that `1.23 M`; the space does not break."""
    for unit, size in _LARGE:
        if number >= size and number >= 100_000:
            return f"{number / size:.3g}\N{NO-BREAK SPACE}{unit}"
    return f"{number:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def plural(number: int, word: str) -> str:
    return f"{count(number)} {word}{'' if number == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Calendar:
    """Instants in the local time of a zone."""

    zone: ZoneInfo

    def at(self, moment: int) -> datetime:
        return (EPOCH + timedelta(microseconds=moment)).astimezone(self.zone)

    def moment(self, moment: int) -> str:
        at = self.at(moment)
        return f"{at.day} {at:%b %H:%M}"

    def whole(self, moment: int) -> str:
        at = self.at(moment)
        return f"{at.day} {at:%b %Y %H:%M %Z}"

    def span(self, span: Span) -> str:
        """`3 Nov 14:02` to `14:31`; the day is repeated only if it differs, seconds are shown for short spans."""
        start, end = self.at(span.start), self.at(span.end)
        clock = "%H:%M:%S" if span.seconds < 120 else "%H:%M"
        until = f"{end:{clock}}" if start.date() == end.date() else f"{end.day} {end:%b} {end:{clock}}"
        return f"{start.day} {start:%b} {start:{clock}}{TO}{until}"

    def tick(self, moment: int, of: Span) -> str:
        at = self.at(moment)
        if of.seconds <= 36 * 3600:
            return f"{at:%H:%M}"
        return f"{at.day} {at:%b}" if of.seconds < 300 * 86400 else f"{at:%b %Y}"


def shorten(text: str, letters: int = _NAME) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def name(text: str | None, letters: int = _NAME) -> Markup:
    """A name from outside, in any script; a tooltip has the complete name."""
    if not text:
        return element("span", "no name" if text is None else "“”", class_="muted")
    return element("bdi", shorten(text, letters), title=text if len(text) > letters else None)


def cluster(text: str | None, letters: int = _NAME) -> Markup:
    return name(text, letters) if text else element("span", UNREACHED)


def link(which: Which) -> Markup:
    """`orders from eu-1 to here`, and its vhost if it is not the default one; most links are of exchanges, so only
    other kinds are named: `queue orders from …`, and `shovel drain to here`, which has no upstream."""
    kind = join(name(which.kind), " ") if which.kind not in (None, EXCHANGE) else None
    origin = which.upstream_cluster or which.upstream
    start = None if which.kind == SHOVEL and not origin else join(" from ", name(origin))
    vhost = join(" in ", name(which.vhost)) if which.vhost not in (None, "/") else None
    ends = join(start, toward(which.cluster))
    beside = element("span", ends, vhost, class_="beside")
    return join(kind, element("span", name(which.name), class_="link"), beside)


def toward(cluster_name: str | None, letters: int = _NAME) -> Markup | None:
    """Adds the cluster, because links of several clusters may have the same name."""
    return join(" to ", name(cluster_name, letters)) if cluster_name else None


def why(reason: str | None, error: str | None) -> str:
    """The agent's error, or else the name of the reason."""
    return shorten(error, 160) if error else (reason or "no reason reported").replace("_", " ")
