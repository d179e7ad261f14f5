"""The summary of another agent, which may be anything: only what is known and bounded is passed on."""

from __future__ import annotations

from typing import Any, Final

from agent.core.links.lifecycle import Level, Status
from agent.status.fleet import MOST_EDGES

LONGEST: Final = 1_000  # characters of a text
MOST: Final = 10**15  # of any number
_STRANGE: Final = "answers, but not as an agent of this release does"


class UnusableError(Exception):
    """Why a peer's answer can't be shown."""


def checked(found: object) -> dict[str, Any]:
    fields = _fields(found)
    level = _text(fields.get("level"))
    edges = fields.get("edges")
    if level not in set(Level) or not isinstance(edges, list):
        raise UnusableError(_STRANGE)
    return {
        "agent": _text(fields.get("agent")),
        "group": _text(fields.get("group")),
        "cluster": _text_or_none(fields.get("cluster")),
        "version": _text(fields.get("version")),
        "ready": fields.get("ready") is True,
        "unread": _text_or_none(fields.get("unread")),
        "now": _text(fields.get("now")),
        "level": level,
        "verdict": _text(fields.get("verdict")),
        "links": _counts(fields.get("links")),
        "edges": [_edge(each) for each in edges[:MOST_EDGES]],
        "edges_left_out": int(_number(fields.get("edges_left_out"))) + max(0, len(edges) - MOST_EDGES),
    }


def _edge(found: object) -> dict[str, Any]:
    fields = _fields(found)
    return {
        "upstream": _text(fields.get("upstream")),
        "destination": _text_or_none(fields.get("destination")),  # none of an earlier release: its cluster
        "is_known": fields.get("is_known") is True,
        "links": _counts(fields.get("links")),
        "rate": _number(fields.get("rate")),
        "waiting": int(_number(fields.get("waiting"))),
        "is_exact": fields.get("is_exact") is True,
        "oldest_unconfirmed_seconds": _number(fields.get("oldest_unconfirmed_seconds")),
    }


def _fields(found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise UnusableError(_STRANGE)
    return found


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise UnusableError(_STRANGE)
    return found[:LONGEST]


def _text_or_none(found: object) -> str | None:
    return None if found is None else _text(found)


def _counts(found: object) -> dict[str, int]:
    """States that a later release may have are left out."""
    fields = _fields(found)
    return {str(status): int(_number(fields[status])) for status in Status if status in fields}


def _number(found: object) -> float:
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= MOST:
        raise UnusableError(_STRANGE)
    return found
