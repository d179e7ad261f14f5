"""The slot that a link belongs to, and the names of a group's slots at the broker.

All replicas have to agree on this, so the names carry the number of this format: agents with another one don't meet.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from agent.core.rules.names import AGENT_PREFIX

FORMAT: Final = 1
SLOTS: Final = 64
"""Few enough for a broker to hold their queues at no cost, and many enough to share few links evenly."""
LONGEST_GROUP: Final = 150  # bytes of a group's name; a queue's has 255


def slot_of(link_id: str) -> int:
    """A link's id is a hash already: any of its digits are as good as the others."""
    return int(link_id, 16) % SLOTS


def _short(group: str) -> str:
    if len(group.encode()) <= LONGEST_GROUP:
        return group
    return sha256(group.encode()).hexdigest()


def lease_queue(group: str, slot: int) -> str:
    return f"{AGENT_PREFIX}lease {FORMAT} of {_short(group)}, slot {slot}"


def lease_exchange(group: str) -> str:
    """The name of the exchange for tokens; the routing key is the number of the slot."""
    return f"{AGENT_PREFIX}leases {FORMAT} of {_short(group)}"


def exchange(group: str) -> str:
    """The name of the exchange for the reports of a group's replicas."""
    return f"{AGENT_PREFIX}replicas {FORMAT} of {_short(group)}"


def own_queue(group: str, replica: str) -> str:
    """The name of the queue from which one replica receives the messages of the others."""
    return f"{AGENT_PREFIX}replica {FORMAT} of {_short(group)}, {replica}"
