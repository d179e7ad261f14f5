"""Messages that enter in another protocol than the one in which links take them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from agent.check.context import CheckContext
from agent.check.findings import Finding, Topic
from agent.core.text import counted

AMQP_1_0: Final = frozenset({"AMQP 1-0", "AMQP 1.0"})


async def judge_protocols(context: CheckContext) -> AsyncIterator[Finding]:
    """Find vhosts that links take messages from, and clients may publish to by AMQP 1.0. Brokers from 4.0 on keep such
    a message as it came; former ones convert it themselves."""
    links: dict[tuple[str, str], list[str]] = {}
    counts: dict[tuple[str, str], int] = {}
    for each in context.links:
        broker, api = context.broker(each.source), context.apis.of(each.source)
        if broker is None or api is None or not broker.limits_deliveries:  # since 4.0, too
            continue
        protocols = await api.protocols(broker.vhost)
        if protocols is not None:
            place = broker.where, broker.vhost
            counts[place] = sum(protocols[name] for name in AMQP_1_0)
            links.setdefault(place, []).append(each.label)
    for (where, vhost), count in counts.items():
        if count:
            yield Finding.warning(
                Topic.PROTOCOL,
                where,
                f"{counted(count, 'connection')} to vhost {vhost!r} by AMQP 1.0: what they publish reaches links by "
                "AMQP 0-9-1, which has no place for the properties to, subject and group-sequence, and keeps "
                "annotations as headers",
                "see docs/amqp10-conversion.md for what is kept and what is lost",
                tuple(links[where, vhost]),
            )
