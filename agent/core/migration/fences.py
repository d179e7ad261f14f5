"""Fences: permissions taken from clients of the source, and what they had, so that any host can give it back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

PREFIX: Final = "federation-agent fence "
"""Of the names of global parameters, one for each user and vhost."""
NOTHING: Final = "^$"
IN_FORCE_AFTER: Final = 65.0
"""By then each connection of before is listed: brokers list them as late as they collect figures, a minute at most."""
SETTLED_AFTER: Final = 10.0
"""A connection that is made so long after the fence has never had another permission: by then all nodes know of it, and
so far their clocks may differ. One of before keeps what it had, while its channels are busy or for ever."""
_LATEST: Final = 1e11
_NAMED: Final = 16  # hexadecimal digits


@dataclass(frozen=True, slots=True)
class Permissions:
    """Of one user in one vhost, as regular expressions."""

    configure: str
    write: str
    read: str

    @property
    def may_publish(self) -> bool:
        return self.write not in {NOTHING, ""}

    @property
    def are_taken(self) -> bool:
        return self.configure == self.write == NOTHING

    def taken(self) -> Permissions:
        return Permissions(NOTHING, NOTHING, self.read)

    def given_back(self, had: Permissions) -> Permissions:
        """Fences leave `read` alone, so what it is now stays."""
        return Permissions(had.configure, had.write, self.read)


@dataclass(frozen=True, slots=True)
class ClientFence:
    """The permissions that a user had in a vhost. `since` is when they were taken, in seconds since 1970 by the
    source's clock; None while that isn't done."""

    vhost: str
    user: str
    had: Permissions
    since: float | None = None

    @property
    def name(self) -> str:
        text = json.dumps([self.vhost, self.user])
        return PREFIX + hashlib.sha256(text.encode()).hexdigest()[:_NAMED]

    @property
    def value(self) -> Mapping[str, Any]:
        return {"vhost": self.vhost, "user": self.user, **asdict(self.had), "since": self.since}

    def is_in_force(self, now: float, permissions: Permissions) -> bool:
        return self.since is not None and now >= self.since + IN_FORCE_AFTER and not permissions.may_publish

    def covers(self, connected_at: float | None) -> bool:
        """True if a connection that was made then never had what was taken."""
        return self.since is not None and connected_at is not None and connected_at >= self.since + SETTLED_AFTER


def read_fence(name: str, value: Any) -> ClientFence | None:
    """None for what isn't one, or was changed so that it can't be read."""
    if not isinstance(value, dict):
        return None
    since = value.get("since")
    texts = [value.get(each) for each in ("vhost", "user", *(field.name for field in fields(Permissions)))]
    if not (since is None or _is_time(since)) or not all(isinstance(each, str) for each in texts):
        return None
    vhost, user, *had = map(str, texts)
    found = ClientFence(vhost, user, Permissions(*had), None if since is None else float(since))
    return found if found.name == name else None


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LATEST
