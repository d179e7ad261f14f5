"""One result of a check: what, where, why and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Level(StrEnum):
    """Errors and warnings are problems; a note is only worth knowing, such as what could not be judged."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Topic(StrEnum):
    CONNECTION = "connection"
    TLS = "tls"
    PERMISSIONS = "permissions"
    ALARM = "alarm"
    RELEASE = "release"
    LIMITS = "limits"
    CLOCK = "clock"
    EVENTS = "events"
    PLUGIN = "native plugin"
    ALTERNATE = "alternate exchange"
    LOOP = "loop"
    DEFINITIONS = "definitions"
    LINK = "link"
    DELIVERY = "delivery"


@dataclass(frozen=True, slots=True)
class Finding:
    """`where` names a broker, an object or a place in a file; `links` are those concerned, as `vhost/name`."""

    level: Level
    topic: Topic
    where: str
    message: str
    fix: str = ""
    links: tuple[str, ...] = ()


_LEVELS: Final = tuple(Level)
_TOPICS: Final = tuple(Topic)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first, each once."""
    return sorted(dict.fromkeys(findings), key=_rank)


def _rank(each: Finding) -> tuple[int, int, str, str]:
    return _LEVELS.index(each.level), _TOPICS.index(each.topic), each.where, each.message


def has_problems(findings: Iterable[Finding]) -> bool:
    return any(each.level is not Level.NOTE for each in findings)
