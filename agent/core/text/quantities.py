"""Numbers of things, lengths of time and times, as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_WORDS: Final = {"d": "d", "h": "h", "m": "min", "s": "s"}
_TWO_BELOW: Final = {"d": 10, "h": 10, "m": 10}  # 3h20m, but 12h


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def listed(words: Sequence[str], most: int, what: str = "", *, separator: str = ", ") -> str:
    """The first words, and the number of the others."""
    shown, more = separator.join(words[:most]), len(words) - most
    end = "; " if ";" in separator else " "
    return f"{shown}{end}and {counted(more, f'more {what}') if what else f'{more:,} more'}" if more > 0 else shown


def waiting_text(messages: int, where: str = "", *, is_exact: bool) -> str:
    """`at least 3 messages wait upstream`; exact where the number is known of all links, and still is."""
    there = f" {where}" if where else ""
    if messages:
        return f"{'' if is_exact else 'at least '}{counted(messages, 'message waits', 'messages wait')}{there}"
    return f"no messages wait{there}" if is_exact else f"how many messages wait{there} is not known"


def age(seconds: float) -> str:
    """A length of time as kubectl writes it: `45s`, `5m30s`, `12m`, `3h20m`, `4d`."""
    return "".join(f"{number}{unit}" for unit, number in _parts(seconds))


def in_words(seconds: float) -> str:
    """A length of time in its largest unit alone: `45 s`, `4 min`, `3 h`, `12 d`."""
    unit, number = _parts(seconds)[0]
    return f"{number} {_WORDS[unit]}"


def in_full(seconds: float) -> str:
    """A length of time in its two largest units: `3 min 17 s`; below a minute, as exactly as it is known: `1.5 s`."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    return " ".join(f"{number} {_WORDS[unit]}" for unit, number in _parts(seconds))


def _parts(seconds: float) -> list[tuple[str, int]]:
    whole = max(0, int(seconds))
    for at, (unit, length) in enumerate(_UNITS):
        number, rest = divmod(whole, length)
        if number:
            if number < _TWO_BELOW.get(unit, 0):
                smaller, its_length = _UNITS[at + 1]
                if rest >= its_length:
                    return [(unit, number), (smaller, rest // its_length)]
            return [(unit, number)]
    return [("s", 0)]


def rfc3339(seconds: float, *, digits: str = "milliseconds") -> str:
    """Seconds since 1970 as RFC 3339, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=digits).replace("+00:00", "Z")
