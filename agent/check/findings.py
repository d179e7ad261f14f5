"""A finding of `check`: what is wrong, where, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class FindingLevel(StrEnum):
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
    PROTOCOL = "protocol"
    LINK = "link"
    DELIVERY = "delivery"


Links = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """`where` names a broker, an object or a place in a file; `links` are those concerned, as `vhost/name`."""

    level: FindingLevel
    topic: Topic
    where: str
    message: str
    fix: str = ""
    links: Links = ()

    @classmethod
    def error(cls, topic: Topic, where: str, message: str, fix: str = "", links: Links = ()) -> Finding:
        return cls(FindingLevel.ERROR, topic, where, message, fix, links)

    @classmethod
    def warning(cls, topic: Topic, where: str, message: str, fix: str = "", links: Links = ()) -> Finding:
        return cls(FindingLevel.WARNING, topic, where, message, fix, links)

    @classmethod
    def note(cls, topic: Topic, where: str, message: str, fix: str = "", links: Links = ()) -> Finding:
        return cls(FindingLevel.NOTE, topic, where, message, fix, links)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first, each once."""
    levels, topics = [*FindingLevel], [*Topic]
    return sorted(
        dict.fromkeys(findings),
        key=lambda each: (levels.index(each.level), topics.index(each.topic), each.where, each.message),
    )


def has_problems(findings: Iterable[Finding]) -> bool:
    return any(each.level is not FindingLevel.NOTE for each in findings)
