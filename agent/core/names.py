"""What things are called on the brokers. The names are the native plugin's own, so that either can take over."""

from __future__ import annotations

import hashlib

QUARANTINE_QUEUE = "federation-agent: quarantine"
AGENT_PREFIX = "federation-agent: "
LETTERS = ("A", "B")
_SHORT = 255  # bytes


def upstream_queue(
    exchange: str, upstream_vhost: str, *, downstream_exchange: str, downstream_vhost: str, downstream_cluster: str
) -> str:
    if upstream_vhost != downstream_vhost:
        suffix = f":{downstream_vhost}:{downstream_exchange}"
    elif exchange != downstream_exchange:
        suffix = f":{downstream_exchange}"
    else:
        suffix = ""
    return f"federation: {exchange} -> {downstream_cluster}{suffix}"


def internal_exchange(queue: str, letter: str) -> str:
    return f"{queue} {letter}"


def are_too_long(queue: str) -> bool:
    """Whether no broker takes what is named after the queue."""
    return len(internal_exchange(queue, LETTERS[0]).encode(errors="surrogateescape")) > _SHORT


def other_letter(letter: str) -> str:
    return "B" if letter == "A" else "A"


def bound_exchange(vhost: str, exchange: str, letter: str) -> str:
    """How a binding header names the downstream exchange it comes from."""
    return f"{vhost}:{exchange} {letter}"


def connection(upstream: str, policy: str) -> str:
    return f"Federation link (upstream: {upstream}, policy: {policy})"


def consumer_tag(upstream: str, number: int = 1) -> str:
    """For the first, second … consumer that a channel has, one after another; as short as AMQP wants it."""
    suffix = f" {number}" if number > 1 else ""
    return f"federation-link-{upstream}".encode()[: _SHORT - len(suffix)].decode(errors="ignore") + suffix


class LinkIds:
    """Eight hexadecimal digits a link: the same after every restart, distinct even where digests collide.

    What makes a link the same link is its kind, vhost, name, upstream and name over there.
    """

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def of(self, *identity: str) -> str:
        text = "\0".join(identity)
        while (
            digest := hashlib.blake2s(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        ) in self._taken:
            text += "\0"
        self._taken.add(digest)
        return digest
