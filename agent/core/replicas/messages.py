"""The messages between the replicas of a group, as JSON. Anybody may publish there, so unreadable messages are
ignored."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Final

from agent.core.links.lifecycle import Pause
from agent.core.replicas.slots import FORMAT, SLOTS, read_message

MOST_LINKS: Final = 100_000
_LONGEST: Final = 255
_ID: Final = 8  # characters of a link's id
_IDS: Final = re.compile(r"(?:[0-9a-f]{8})*+")


@dataclass(frozen=True, slots=True)
class Report:
    """A report of one replica: its id and name, the slots that it holds, and the links that it knows. `links` is None
    where they are the same as in its last report that named them. `asks`: it has just started, and asks the others for
    their reports."""

    replica: str
    name: str
    slots: frozenset[int]
    links: frozenset[str] | None
    asks: bool = False

    def encode(self) -> bytes:
        links = None if self.links is None else "".join(sorted(self.links))
        return _encoded(
            "report", replica=self.replica, name=self.name, slots=sorted(self.slots), links=links, asks=self.asks
        )


@dataclass(frozen=True, slots=True)
class Leaving:
    """A replica stops in order."""

    replica: str

    def encode(self) -> bytes:
        return _encoded("leaving", replica=self.replica)


@dataclass(frozen=True, slots=True)
class Asked:
    """An operator asked a replica for something that another one has to do."""

    replica: str
    link: str
    action: str
    pause: Pause | None = None

    def encode(self) -> bytes:
        about = None if self.pause is None else asdict(self.pause)
        return _encoded("asked", replica=self.replica, link=self.link, action=self.action, about=about)


@dataclass(frozen=True, slots=True)
class Removed:
    """A link that is no longer defined has been removed from its upstream."""

    replica: str
    link: str

    def encode(self) -> bytes:
        return _encoded("removed", replica=self.replica, link=self.link)


Message = Report | Leaving | Asked | Removed


def _encoded(kind: str, **values: object) -> bytes:
    return json.dumps({"format": FORMAT, "kind": kind, **values}).encode()


def decode(body: bytes) -> Message | None:
    found = read_message(body)
    if not _is_name(found.get("replica")):
        return None
    match found.get("kind"):
        case "report":
            return _report(found)
        case "leaving":
            return Leaving(found["replica"])
        case "asked" if _is_name(found.get("link")) and _is_name(found.get("action")):
            pause = Pause.read(found.get("about")) if found["action"] == "pause" else None
            return Asked(found["replica"], found["link"], found["action"], pause)
        case "removed" if _is_name(found.get("link")):
            return Removed(found["replica"], found["link"])
        case _:
            return None


def _report(found: dict[str, Any]) -> Report | None:
    slots, links = found.get("slots"), found.get("links")
    if not isinstance(slots, list) or not _is_name(found.get("name")):
        return None
    if links is not None and not _are_ids(links):
        return None
    return Report(
        found["replica"],
        found["name"],
        frozenset(slot for slot in slots[:SLOTS] if isinstance(slot, int) and 0 <= slot < SLOTS),
        None if links is None else frozenset(links[at : at + _ID] for at in range(0, len(links), _ID)),
        found.get("asks") is True,
    )


def _are_ids(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MOST_LINKS * _ID and _IDS.fullmatch(value) is not None


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and value.isprintable()
