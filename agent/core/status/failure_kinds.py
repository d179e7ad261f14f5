"""Every kind of failure, with all that is asked of it: by metrics, events, causes, outages, advice and `check`.

Why: docs/decisions/0040-failures-are-values.md
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from agent.core.model import LinkKind
from agent.errors import Failure, FailureKind


@dataclass(frozen=True, slots=True)
class KindFacts:
    """`advice` is what to do on `{broker}`; `advice_on_links` is instead of it where `{links}` are few. `word` is the
    `reason` in metrics and the second half of that in events, unless the failure is permanent."""

    advice: str = ""
    advice_on_links: str = ""
    clearing: str = ""  # of an alarm: how to end it
    word: str = "other"
    links_are: str = "down"
    cause: FailureKind | None = None  # the kind that it counts as, where the same has to be done about both
    is_vague: bool = False  # where it is permanent, the cause is the configuration
    outage: FailureKind | None = None  # the kind that it counts as in outages: often none can be made after a loss
    may_recur: bool = False  # several times within minutes
    differ_in: Literal["object", "user", "error", ""] = ""  # in what failures of one cause differ


SLOW_PATH: Final = "look at the downstream's disks and CPU and at the path"
_ALARM: Final = "Messages wait upstream; the links continue by themselves when it clears."
_FREE_MEMORY: Final = (
    "On {broker}, `rabbitmq-diagnostics memory_breakdown` shows what uses the memory: consume or purge queues, or "
    "raise vm_memory_high_watermark."
)
_FREE_DISK: Final = "On {broker}, free disk space until it is above disk_free_limit (`rabbitmq-diagnostics status`)."
_DECLARE: Final = (
    "Declare the {what} again on {{broker}}, and its link begins anew. If it was meant to go, run `federation-agent "
    "forget {{links}}`; after an hour it is forgotten anyway."
)

KINDS: Final = {
    FailureKind.MEMORY_ALARM: KindFacts(f"{_FREE_MEMORY} {_ALARM}", clearing=_FREE_MEMORY, links_are="blocked"),
    FailureKind.DISK_ALARM: KindFacts(f"{_FREE_DISK} {_ALARM}", clearing=_FREE_DISK, links_are="blocked"),
    FailureKind.BLOCKED: KindFacts(
        "On {broker}, `rabbitmq-diagnostics alarms` shows what blocks publishers. " + _ALARM, links_are="blocked"
    ),
    FailureKind.NO_CONFIRMS: KindFacts(
        "Messages wait and {broker} confirms none: look there for load, full queues and queues without a quorum.",
        links_are="stalled",
    ),
    FailureKind.PAUSED: KindFacts(
        "Messages wait upstream. `federation-agent links --status paused` shows the reasons; resume those links whose "
        "reason is over.",
        "Messages wait upstream. Run `federation-agent resume {links}` if the reason is over.",
        links_are="paused",
    ),
    FailureKind.EXCHANGE_DELETED: KindFacts(
        "Declare the exchanges again on {broker}, and their links begin anew.",
        _DECLARE.format(what="exchange"),
        links_are="gone",
    ),
    FailureKind.QUEUE_DELETED: KindFacts(
        "Declare the queues again on {broker}, and their links begin anew.",
        _DECLARE.format(what="queue"),
        links_are="gone",
    ),
    FailureKind.BEHIND: KindFacts(
        "More is published on {broker} than the links forward: compare their rates, " + SLOW_PATH + ", and leave "
        "prefetch-count at auto.",
        links_are="behind",
    ),
    FailureKind.UNREACHABLE: KindFacts(
        "Check that {broker} runs and that the address in the error can be reached from the agent. It tries again by "
        "itself.",
        word="unreachable",
        outage=FailureKind.LOST,
    ),
    FailureKind.UNRESOLVED: KindFacts(
        "The name of {broker} doesn't resolve on the agent's machine: check DNS there, or the host in the URI. "
        "The agent tries again by itself.",
        word="unreachable",
        cause=FailureKind.UNREACHABLE,
    ),
    FailureKind.NOT_ANSWERING: KindFacts(
        "{broker} takes connections and says nothing: it is frozen or overloaded, or the network swallows what "
        "is sent. Look at its CPU, memory and disks. If it has never answered, check that the address in the error is "
        "an AMQP port. The agent tries again by itself.",
        word="unreachable",
        outage=FailureKind.LOST,
    ),
    FailureKind.NOT_READING: KindFacts(
        "{broker} takes nothing more of what it is sent: a queue that the error names, or the whole broker, is slow. "
        "Look there, and at its CPU, memory and disks. The agent tries again by itself.",
        cause=FailureKind.NOT_ANSWERING,
    ),
    FailureKind.HEARTBEATS_MISSED: KindFacts(word="heartbeat", cause=FailureKind.NOT_ANSWERING),
    FailureKind.LOST: KindFacts(
        "The network or {broker} ended the connection; the agent tries again by itself. If it lasts, read its log.",
        word="lost",
        may_recur=True,
    ),
    FailureKind.CLOSED: KindFacts(word="closed", cause=FailureKind.OTHER, is_vague=True),
    FailureKind.STOOD_STILL: KindFacts(
        "{broker} did nothing for more than a second, or did not hear the downstream: links are given up then, as "
        "another agent of its group may run them. Its log says for how long it stood still. Look at the CPU that it is "
        "given: limits, other processes. It goes on by itself.",
        word="standstill",
        may_recur=True,
    ),
    FailureKind.LOGIN: KindFacts(
        "Correct user and password in the URI, or create the user on {broker}. The agent notices changed files.",
        word="unreachable",  # by one of several addresses; the others may be there again soon
        differ_in="user",
    ),
    FailureKind.PERMISSION: KindFacts(word="unreachable"),
    FailureKind.NO_VHOST: KindFacts(word="unreachable"),
    FailureKind.NOT_FOUND: KindFacts(
        "Create on {broker} what the error names, or correct its name in the definition.",
        word="closed",
        differ_in="object",
    ),
    FailureKind.TLS: KindFacts(word="lost", cause=FailureKind.LOST, is_vague=True),
    FailureKind.INVALID: KindFacts(
        "Change the definition as the error says. The agent notices it; `restart` tries at once.", differ_in="error"
    ),
    FailureKind.OTHER: KindFacts(
        "The agent tries again by itself. If this lasts, read the log of {broker} around this time.",
        is_vague=True,
        may_recur=True,
        differ_in="error",
    ),
}
CAUSES: Final = tuple(kind for kind, facts in KINDS.items() if facts.cause is None)
DELETED: Final = {LinkKind.EXCHANGE: FailureKind.EXCHANGE_DELETED, LinkKind.QUEUE: FailureKind.QUEUE_DELETED}
"""By the kind of the links."""


def cause_of(failure: Failure) -> FailureKind:
    """The kind of cause that it belongs to."""
    facts = KINDS[failure.kind]
    if failure.is_permanent and facts.is_vague:
        return FailureKind.INVALID
    return facts.cause or failure.kind


def outage_of(cause: FailureKind) -> FailureKind:
    """The kind of outage that a kind of cause belongs to."""
    return KINDS[cause].outage or cause
