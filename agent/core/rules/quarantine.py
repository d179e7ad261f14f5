"""The names of a quarantine and of the headers of its messages: see docs/quarantine.md."""

from __future__ import annotations

from enum import StrEnum
from shlex import quote
from typing import Final

from agent.core.rules.names import AGENT_PREFIX

QUEUE: Final = AGENT_PREFIX + "quarantine"
HEADERS: Final = "x-quarantine-"
"""The beginning of the names of all its headers."""

REASON: Final = "x-quarantine-reason"
LINK: Final = "x-quarantine-link"
TIME: Final = "x-quarantine-time"
EXCHANGE: Final = "x-quarantine-exchange"
ROUTING_KEY: Final = "x-quarantine-routing-key"
SOURCE_EXCHANGE: Final = "x-quarantine-source-exchange"
SOURCE_ROUTING_KEY: Final = "x-quarantine-source-routing-key"
"""The address at which the message was published first, if that is not where it was going."""

UNREADABLE_PROPERTIES: Final = "x-quarantine-properties"
"""All of a message's properties as they came, where nobody can read them."""
DEFLATED_PROPERTIES: Final = "x-quarantine-properties-deflated"
"""The same, compressed by zlib, where they and these headers don't fit into one frame."""

EXPIRATION: Final = "x-quarantine-expiration"
USER_ID: Final = "x-quarantine-user-id"
CC: Final = "x-quarantine-cc"
BCC: Final = "x-quarantine-bcc"
"""Properties and headers that would make a broker drop a message in quarantine, refuse it, or send copies of it."""


class QuarantineReason(StrEnum):
    """The reason why a message is in quarantine."""

    TOO_LARGE = "too_large"
    HEADERS_TOO_LARGE = "headers_too_large"
    UNREADABLE = "unreadable"
    CLOSES = "closes_connection"
    REFUSED = "refused"
    RETURNED = "returned_too_often"


def look_command(link: str) -> str:
    """The command that lists what is in quarantine of the link with this id, as the page shows it, too."""
    return f"federation-agent quarantine list -c FILE --link {link}"


def move_command(link: str, *, vhost: str, upstream: str) -> str:
    """The command that takes them elsewhere, as the page shows it, too. A shovel has no upstream."""
    source = quote(f"{vhost}/{upstream}") if upstream else "URI"
    match = f"--match {LINK}={link} --to-queue QUEUE"
    return f"federation-agent move -c FILE --from {source} --queue {quote(QUEUE)} {match}"
