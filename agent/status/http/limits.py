"""The limits of HTTP clients: seconds, bytes, connections and thereby file descriptors."""

from __future__ import annotations

import resource
from typing import Final

HEAD_WITHIN: Final = 10.0  # seconds, for the headers of a request: from its first byte, or from connecting
IDLE: Final = 60.0  # between two requests; most scrapers come more often, so they keep their connection
PATIENCE: Final = 30.0  # a reader that takes less than LEAST_TAKEN for this long is disconnected
LEAST_TAKEN: Final = 64 * 1024
CLOSED_WITHIN: Final = 5.0  # for unsent data when a connection ends
LINGER: Final = 2.0  # for the rest of a body that isn't read
MOST_BODY: Final = 64 * 1024  # no request needs one
MOST_UNREAD: Final = 128 * 1024  # of one client, received and not part of a request that is being handled
MOST_HELD: Final = 64 * 1024 * 1024  # unsent responses of all clients
MOST_HEADERS: Final = 64

_SHARE: Final = 5  # one in this many descriptors is for HTTP, and with the spare ones a quarter; the rest is for links
_MOST: Final = 512
_FEWEST: Final = 16


def most_connections(descriptors: int) -> int:
    """How many HTTP connections may be open, given the process's limit of descriptors."""
    return max(_FEWEST, min(_MOST, descriptors // _SHARE))


def spare_connections(most: int) -> int:
    """How many more may be open briefly while all are being served and none can be closed."""
    return most // 4


def descriptor_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST * _SHARE if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> None:
    """Raises the soft limit to the hard one: the usual 1,024 are for programs that call select(), which we don't."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
