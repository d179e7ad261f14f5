"""The names of objects on the brokers. They are the native plugin's own, so that either can take over.

Why: docs/decisions/0039-link-identity.md
"""

from __future__ import annotations

import hashlib

AGENT_PREFIX = "federation-agent: "
LEASE_PREFIX = f"{AGENT_PREFIX}lease "
"""Of queues by which agents share links: no user's message is ever in them."""
QUEUE_PREFIX = "federation: "
STANDBY = f"{AGENT_PREFIX}standby"
"""The name of the set that the agent defines for its standby; those of the policies that federate begin with it."""
PROMOTED = "federation-agent-promoted"
"""The global parameter that ends a standby; its value says `SINCE` when, and `HOW`: by a `SWITCHOVER`, or not."""
SINCE = "since"
HOW = "how"
SWITCHOVER = "switchover"
HELD_BACK = "federation-agent-held-back"
"""The global parameter that remembers what a promotion makes, as the source may be gone by then."""
SWITCHED = "federation-agent-switchover"
"""The global parameter that remembers how far a switchover is, so that it can be repeated."""
MOVE_TAG = f"{AGENT_PREFIX}migrate to "
"""The beginning of the tag of each consumer of a move; the destination's name follows."""
TRIMMING = f"{AGENT_PREFIX}trimming"
"""The exclusive queue of the one agent that takes copies out in a vhost of a standby."""
PROMOTING = f"{AGENT_PREFIX}promoting"
"""The exclusive queue of the one command that promotes a vhost of a standby."""
LETTERS = ("A", "B")
_SHORT = 255  # bytes
_LONGEST_REPLY = 255
_LONGEST_REFUSAL = 170  # of a declaration, besides the names in it


def upstream_queue(
    exchange: str, upstream_vhost: str, *, downstream_exchange: str, downstream_vhost: str, downstream_cluster: str
) -> str:
    if upstream_vhost != downstream_vhost:
        suffix = f":{downstream_vhost}:{downstream_exchange}"
    elif exchange != downstream_exchange:
        suffix = f":{downstream_exchange}"
    else:
        suffix = ""
    return f"{QUEUE_PREFIX}{exchange} -> {downstream_cluster}{suffix}"


def internal_exchange(queue: str, letter: str) -> str:
    return f"{queue} {letter}"


def can_be_asked_for(name: str, vhost: str, *, kind: str = "exchange") -> bool:
    """True if asking for the object is harmless even where it is missing."""
    return _can_be_sent(f"NOT_FOUND - no {kind} '{name}' in vhost '{vhost}'")


def can_be_declared(*names: str) -> bool:
    """True if a declaration that holds these names is harmless even where it is refused."""
    return _can_be_sent("".join(names), room=_LONGEST_REPLY - _LONGEST_REFUSAL)


def _can_be_sent(text: str, *, room: int = _LONGEST_REPLY) -> bool:
    """True if brokers can send an error text that holds these names. They cut one that is too long; from 4.0 on they
    close the connection instead if it isn't ASCII."""
    return text.isascii() or len(text.encode(errors="surrogateescape")) <= room


def canary(exchange: str, queue: str, vhost: str) -> str | None:
    """The exchange that is deleted together with the upstream exchange of this upstream queue. A readable name if it
    fits, else with a digest of the queue's name, and None if neither fits, or if the exchange can't be deleted.
    """
    if is_permanent(exchange):
        return None
    room = min(_SHORT, _LONGEST_REPLY - len(f"PRECONDITION_FAILED - exchange '' in vhost '{vhost}' in use".encode()))
    digest = hashlib.blake2s(queue.encode(errors="surrogateescape"), digest_size=16).hexdigest()
    readable = f"{AGENT_PREFIX}notices when {exchange} is deleted ({queue})"
    short = f"{AGENT_PREFIX}notices a deletion ({digest})"
    return next((name for name in (readable, short) if len(name.encode(errors="surrogateescape")) <= room), None)


def stream_offset(vhost: str, shovel: str, cluster: str) -> str:
    """The queue that remembers how far a shovel has copied a stream. Shovels of several clusters may have the same name
    and read the same stream, each from its own place. A readable name if it fits, else with a digest of it."""
    readable = f"{AGENT_PREFIX}offset of {vhost}/{shovel} -> {cluster}"
    encoded = readable.encode(errors="surrogateescape")
    if len(encoded) <= _SHORT:
        return readable
    return f"{AGENT_PREFIX}offset ({hashlib.blake2s(encoded, digest_size=16).hexdigest()})"


def is_permanent(exchange: str) -> bool:
    """True if an exchange of this name can't be deleted."""
    return exchange.startswith("amq.")


def are_too_long(queue: str) -> bool:
    """True if names derived from the queue are too long for brokers."""
    return len(internal_exchange(queue, LETTERS[0]).encode(errors="surrogateescape")) > _SHORT


def other_letter(letter: str) -> str:
    return "B" if letter == "A" else "A"


def bound_exchange(vhost: str, exchange: str, letter: str) -> str:
    """The name of the downstream exchange in a binding's header."""
    return f"{vhost}:{exchange} {letter}"


def connection(upstream: str, policy: str) -> str:
    return f"Federation link (upstream: {upstream}, policy: {policy})"


def consumer_tag(upstream: str) -> str:
    return f"federation-link-{upstream}"


def numbered(tag: str, number: int) -> str:
    """The tag of the first, second … consumer that a channel has, one after another, within AMQP's length."""
    suffix = f" {number}" if number > 1 else ""
    return tag.encode()[: _SHORT - len(suffix)].decode(errors="ignore") + suffix


class LinkIds:
    """Eight hexadecimal digits per link: the same after every restart, distinct even if digests collide. The identity
    of a link is its kind, vhost, name, upstream and upstream name.
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
