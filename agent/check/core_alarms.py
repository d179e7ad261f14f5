"""Alarms of a broker's nodes. While one node has one, the whole cluster accepts no messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from agent.check.findings import Finding, Level, Topic
from agent.core.status.advice import CLEARING
from agent.errors import FailureKind

MOST_NAMED: Final = 5  # brokers or nodes in one text


@dataclass(frozen=True, slots=True)
class NodeAlarms:
    """What the HTTP API shows of a running node; None where it has no statistics."""

    node: str
    memory: bool | None
    disk: bool | None


@dataclass(frozen=True, slots=True)
class Alarm:
    """One resource that the named nodes lack."""

    trouble: FailureKind
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.trouble} on {named(self.nodes)}"


def alarms_of(nodes: Sequence[NodeAlarms]) -> tuple[Alarm, ...]:
    found = (
        Alarm(FailureKind.MEMORY_ALARM, tuple(each.node for each in nodes if each.memory)),
        Alarm(FailureKind.DISK_ALARM, tuple(each.node for each in nodes if each.disk)),
    )
    return tuple(each for each in found if each.nodes)


def judge_alarms(
    where: str, nodes: Sequence[NodeAlarms], *, links_to: Sequence[str], links_from: Sequence[str]
) -> Iterator[Finding]:
    """`links_to` publish to this broker and stop, `links_from` take messages from it and find nothing new."""
    links = tuple(dict.fromkeys(links_to or links_from))
    level = Level.ERROR if links_to else Level.WARNING
    effect = "links to it deliver nothing" if links_to else "nothing new arrives there, and its backlog still flows"
    for each in alarms_of(nodes):
        message = f"{each}: the broker accepts no messages, so {effect}"
        yield Finding(level, Topic.ALARM, where, message, CLEARING[each.trouble].format(broker="that broker"), links)
    if any(each.memory is None or each.disk is None for each in nodes):
        message = "whether a node has a memory or disk alarm can't be seen: the broker has no statistics, or none yet"
        yield Finding(Level.NOTE, Topic.ALARM, where, message, "see `rabbitmq-diagnostics alarms` there")


def unseen_alarms(brokers: Sequence[str]) -> Iterator[Finding]:
    """`brokers` have no HTTP API that may be asked; over AMQP only who publishes hears of an alarm."""
    if brokers:
        message = f"whether {named(brokers)} has a memory or disk alarm can't be seen without the HTTP API"
        yield Finding(Level.NOTE, Topic.ALARM, "brokers", message, "give --api NAME=URL")


def named(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    shown = ", ".join(names[:MOST_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown
