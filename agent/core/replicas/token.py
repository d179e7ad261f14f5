"""The message in a slot's queue: the replica that receives it holds the slot. It carries what the next holder has to
know.

Why: docs/decisions/0050-acknowledged-by-link.md
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from agent.core.links.lifecycle import Pause
from agent.core.links.pauses import from_value, to_value
from agent.core.replicas.slots import FORMAT
from agent.core.status import acknowledgements
from agent.core.status.acknowledgements import MOST_REMEMBERED, Acknowledgement

MOST_BYTES: Final = 4 * 1024 * 1024  # a thousand links that are paused, with long reasons
MOST_ENTRIES: Final = 10_000
MOST_NUMBER: Final = 2**40  # a token that says more isn't ours


@dataclass(frozen=True, slots=True)
class Token:
    """The token of a slot. Of several in one queue the one with the highest number counts.

    `paused`: the links that somebody has paused. `tried`: the replicas that couldn't run the slot's links, and when
    they gave it up, in seconds since 1970. `finished`: the links that have done what they were defined for, and what
    that was (`purpose_of`). `acknowledged`: the links whose trouble somebody knows.
    """

    number: int = 0
    paused: Mapping[str, Pause] = field(default_factory=dict)
    tried: Mapping[str, float] = field(default_factory=dict)
    finished: Mapping[str, str] = field(default_factory=dict)
    acknowledged: Mapping[str, Acknowledgement] = field(default_factory=dict)

    def encode(self) -> bytes:
        document = {
            "format": FORMAT,
            "number": self.number,
            "paused": {link: to_value(pause) for link, pause in self.paused.items()},
            "tried": dict(self.tried),
            "finished": dict(self.finished),
            "acknowledged": {link: asdict(known) for link, known in self.acknowledged.items()},
        }
        return json.dumps(document).encode()


def decode(body: bytes) -> Token:
    """The token in a message. Anybody may publish to a queue: a message that is no token counts as an empty one."""
    found = _document(body)
    number, paused = found.get("number"), found.get("paused")
    tried, finished, acknowledged = found.get("tried"), found.get("finished"), found.get("acknowledged")
    return Token(
        number if isinstance(number, int) and 0 <= number <= 2 * MOST_NUMBER else 0,
        {link: from_value(value) for link, value in tuple(paused.items())[:MOST_ENTRIES]}
        if isinstance(paused, dict)
        else {},
        {name: float(at) for name, at in tuple(tried.items())[:MOST_ENTRIES] if _is_number(at)}
        if isinstance(tried, dict)
        else {},
        {link: what for link, what in tuple(finished.items())[:MOST_ENTRIES] if isinstance(what, str)}
        if isinstance(finished, dict)
        else {},
        {
            link: known
            for link, value in tuple(acknowledged.items())[:MOST_REMEMBERED]
            if (known := acknowledgements.from_value(value)) is not None
        }
        if isinstance(acknowledged, dict)
        else {},
    )


def _document(body: bytes) -> dict[str, Any]:
    if len(body) > MOST_BYTES:
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and found.get("format") == FORMAT else {}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**53
