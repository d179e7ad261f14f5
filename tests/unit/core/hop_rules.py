"""The verdict on a message by its decoded headers: what links do with headers as bytes is compared with it."""

from __future__ import annotations

from agent.core import fields
from agent.core.fields import Table
from agent.core.rules.hops import RECEIVED_FROM, Site, Verdict, seen


def judge(headers: Table, max_hops: int, downstream: Site) -> Verdict:
    """Anyone may forge the header, so no form of it is an error."""
    received = fields.get(headers, RECEIVED_FROM)
    if received is None or received.tag != "A":
        return Verdict.FORWARD
    if len(received.value) >= max_hops:
        return Verdict.MAX_HOPS
    return Verdict.VISITED if seen(received.value, downstream) else Verdict.FORWARD
