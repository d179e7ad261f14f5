"""Alarms of brokers' nodes. While one node has one, the whole cluster accepts no messages.

Over AMQP only who publishes gets to know of an alarm, so this needs the HTTP API.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from agent.check.context import CheckContext
from agent.check.findings import Finding, Topic, listed
from agent.check.http_api import BrokerApi, NodeAlarms
from agent.core.status.advice import CLEARING
from agent.errors import FailureKind
from agent.links.ends import DOWNSTREAM

MOST_NAMED: Final = 5  # brokers or nodes in one text


@dataclass(frozen=True, slots=True)
class Alarm:
    """A resource that the named nodes lack."""

    kind: FailureKind
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} on {listed(self.nodes, MOST_NAMED)}"


def alarms_of(nodes: Sequence[NodeAlarms]) -> tuple[Alarm, ...]:
    found = (
        Alarm(FailureKind.MEMORY_ALARM, tuple(each.node for each in nodes if each.memory)),
        Alarm(FailureKind.DISK_ALARM, tuple(each.node for each in nodes if each.disk)),
    )
    return tuple(each for each in found if each.nodes)


async def current_alarm(api: BrokerApi) -> Alarm | None:
    """Asks the HTTP API again; None where there is none, or none can be seen."""
    api.forget()
    return next(iter(alarms_of(await api.alarms() or ())), None)


async def judge_alarms(context: CheckContext) -> AsyncIterator[Finding]:
    """Judges brokers whose HTTP API may be asked, and names others. A downstream without one is reported already."""
    for api in context.apis.all:
        nodes = await api.alarms()
        if nodes is not None:
            to = [each.label for each in context.links if context.apis.of(each.destination) is api]
            from_ = [each.label for each in context.links if context.apis.of(each.source) is api]
            for found in judge_nodes(api.where, nodes, links_to=to, links_from=from_):
                yield found
    unseen = [each for each in context.brokers if each.where != DOWNSTREAM and context.apis.of(each) is None]
    for found in judge_unseen(list(dict.fromkeys(context.brokers[each][0].where for each in unseen))):
        yield found


def judge_nodes(
    where: str, nodes: Sequence[NodeAlarms], *, links_to: Sequence[str], links_from: Sequence[str]
) -> Iterator[Finding]:
    """`links_to` publish to this broker and stop, `links_from` take messages from it and find nothing new."""
    links = tuple(dict.fromkeys(links_to or links_from))
    judged = Finding.error if links_to else Finding.warning
    effect = "links to it deliver nothing" if links_to else "nothing new arrives there, and its backlog still flows"
    for each in alarms_of(nodes):
        message = f"{each}: the broker accepts no messages, so {effect}"
        yield judged(Topic.ALARM, where, message, CLEARING[each.kind].format(broker="that broker"), links)
    if any(each.memory is None or each.disk is None for each in nodes):
        message = "whether a node has a memory or disk alarm can't be seen: the broker has no statistics, or none yet"
        yield Finding.note(Topic.ALARM, where, message, "see `rabbitmq-diagnostics alarms` there")


def judge_unseen(brokers: Sequence[str]) -> Iterator[Finding]:
    """`brokers` have no HTTP API that may be asked."""
    if brokers:
        named = listed(brokers, MOST_NAMED)
        message = f"whether {named} has a memory or disk alarm can't be seen without the HTTP API"
        yield Finding.note(Topic.ALARM, "brokers", message, "give --api NAME=URL")
