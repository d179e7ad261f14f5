"""The kinds of trouble, told from a link's status and error, and what an operator can do about each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from shlex import quote
from typing import Final

from agent.core.check.permissions import Need, Permission, escaped, grant_command
from agent.core.links.critical import NO_LAG, LagDescription
from agent.core.links.lifecycle import Status
from agent.core.model import LinkKind
from agent.core.text.counts import counted


class Trouble(StrEnum):
    """Its value is how it is called."""

    MEMORY_ALARM = "memory alarm"
    DISK_ALARM = "disk alarm"
    BLOCKED = "publishers blocked"
    NO_CONFIRMS = "nothing confirmed"
    PAUSED = "paused for long"
    EXCHANGE_DELETED = "exchange deleted"
    QUEUE_DELETED = "queue deleted"
    BEHIND = "further behind than lag-critical"
    UNREACHABLE = "unreachable"
    SILENT = "not answering"
    LOST = "connection lost"
    STOOD_STILL = "agent stood still"
    LOGIN = "login refused"
    PERMISSION = "permission missing"
    NO_VHOST = "vhost missing"
    NOT_FOUND = "object missing"
    INVALID = "configuration has to change"
    OTHER = "failing"


@dataclass(frozen=True, slots=True)
class Denied:
    """What a broker refused: `action` is empty where it doesn't say which permission is missing."""

    action: str  # configure | write | read
    what: str
    vhost: str
    user: str


DELETED: Final = {LinkKind.EXCHANGE: Trouble.EXCHANGE_DELETED, LinkKind.QUEUE: Trouble.QUEUE_DELETED}
"""By what the links were of."""
QUOTE: Final = "'"
UNRESOLVED: Final = "the host's name can't be resolved"
_LONGEST: Final = 4_000  # of an error that is searched
_DENIED: Final = re.compile(
    r"(?:\b(configure|write|read) )?access to (?:\b(configure|write|read) )?"
    r"((?:exchange|queue|topic)\b.{0,600}?) in vhost '([^']{0,255})' refused for user '([^']{0,255})'"
)
_MISSING_VHOST: Final = re.compile(r"vhost '([^']{1,255})' does not exist")
_MISSING: Final = re.compile(r"\b((?:exchange|queue) '[^']{1,255}')(?: is missing)? in vhost ('[^']{0,255}')")
_LOGIN: Final = re.compile(r"\blogin refused for user ('[^']{0,255}')")
_MOST_NAMED: Final = 10  # links or objects in a command
_MOST_NEEDS: Final = 3  # objects in a sentence
_NO_ACCESS_TO_VHOST: Final = re.compile(r"user '([^']{0,255})' may not access vhost '([^']{0,255})'")


def denied(error: str) -> Denied | None:
    found = _DENIED.search(error[:_LONGEST])
    if found is not None:
        return Denied(found[1] or found[2] or "", found[3], found[4], found[5])
    found = _NO_ACCESS_TO_VHOST.search(error[:_LONGEST])
    return None if found is None else Denied("", "vhost", found[2], found[1])


def trouble_of(status: Status, reason: str, error: str) -> Trouble:
    """`reason` is that of the last change of status, such as `upstream_unreachable`."""
    match status:
        case Status.BLOCKED:
            return _alarm(error)
        case Status.STALLED:
            return Trouble.NO_CONFIRMS
        case Status.PAUSED:
            return Trouble.PAUSED
    for trouble, words in _WORDS.items():
        if any(each in error for each in words):
            return trouble
    if denied(error) is not None:
        return Trouble.PERMISSION
    if status is Status.INVALID:
        return Trouble.INVALID
    return _BY_REASON.get(reason.partition("_")[2], Trouble.OTHER)


def _alarm(error: str) -> Trouble:
    is_memory, is_disk = "memory" in error, "disk" in error
    if is_memory:
        return Trouble.MEMORY_ALARM
    return Trouble.DISK_ALARM if is_disk else Trouble.BLOCKED


_WORDS: Final = {
    Trouble.LOGIN: ("login refused", "login by client certificate refused", "may log in only from"),
    Trouble.UNREACHABLE: ("connection refused",),
    Trouble.SILENT: ("no AMQP within", "it accepts connections and doesn't answer"),
    Trouble.NO_VHOST: ("does not exist: create it there", "vhost not found"),
    Trouble.NOT_FOUND: ("NOT_FOUND", "no queue '", "no exchange '", "' is missing in vhost '"),
}
_BY_REASON: Final = {
    "unreachable": Trouble.UNREACHABLE,
    "lost": Trouble.LOST,
    "heartbeat": Trouble.SILENT,
    "standstill": Trouble.STOOD_STILL,
}


def advice(
    trouble: Trouble,
    broker: str,
    error: str,
    links: Sequence[str] = (),
    *,
    others: Sequence[str] = (),
    needs: Sequence[Need] = (),
    lag: LagDescription = NO_LAG,
    vhosts: Sequence[str] = (),
) -> str:
    """`error` is that of one link, `others` are those of all that have the same trouble. `needs` are what a user that
    lacks a permission needs in that vhost for all links, where it is known. `lag` is that of one that is behind,
    `vhosts` are those that messages don't get into."""
    if trouble is Trouble.PERMISSION:
        refused = (denied(each) for each in dict.fromkeys([error, *others]))
        return _grant(tuple(dict.fromkeys(each for each in refused if each is not None)), broker, needs)
    if trouble is Trouble.NO_VHOST:
        return _create_vhosts(broker, _named(_MISSING_VHOST, error, others))
    if trouble is Trouble.UNREACHABLE and UNRESOLVED in error:
        return (
            f"The name of {broker} doesn't resolve on the agent's machine: check DNS there, or the host in the URI. "
            "The agent tries again by itself."
        )
    if trouble is Trouble.PAUSED and 0 < len(links) <= _MOST_NAMED:
        return f"Messages wait upstream. Run `federation-agent resume {' '.join(links)}` if the reason is over."
    if trouble in DELETED.values() and 0 < len(links) <= _MOST_NAMED:
        return (
            f"Declare the {trouble.removesuffix(' deleted')} again on {broker}, and its link begins anew. If it was "
            f"meant to go, run `federation-agent forget {' '.join(links)}`; after an hour it is forgotten anyway."
        )
    if trouble is Trouble.BEHIND and error:
        return f"Look first at what holds the links up: {error}."
    if trouble is Trouble.BEHIND and lag.is_catching_up:
        return f"Wait: the links forward more than is published on {broker}, so there is nothing else to do."
    if trouble is Trouble.BEHIND and lag.is_at_prefetch:
        return _RAISE_PREFETCH
    if trouble is Trouble.NO_CONFIRMS and vhosts:
        return f"{_ADVICE[trouble].format(broker=broker)} To see how full they are: {_list_queues(vhosts)}."
    return _ADVICE[trouble].format(broker=broker) + _rest(trouble, error, others)


def _list_queues(vhosts: Sequence[str]) -> str:
    commands = [f"`rabbitmqctl list_queues -p {quote(each)} name messages policy arguments`" for each in vhosts]
    return f"{', '.join(commands[:_MOST_NAMED])}{_more(vhosts, 'more vhost')}"


def _named(pattern: re.Pattern[str], error: str, others: Sequence[str]) -> list[str]:
    """What the errors name, each once; that of `error` is the first."""
    found = (pattern.search(each[:_LONGEST]) for each in dict.fromkeys([error, *others]))
    return list(dict.fromkeys(" in vhost ".join(each.groups()) for each in found if each is not None))


def _create_vhosts(broker: str, vhosts: Sequence[str]) -> str:
    if len(vhosts) <= 1:
        what = f" {quote(vhosts[0])}" if vhosts else ""
        return f"Create the vhost on {broker} (`rabbitmqctl add_vhost{what}`), or correct the path of the URI."
    commands = ", ".join(f"`rabbitmqctl add_vhost {quote(each)}`" for each in vhosts[:_MOST_NAMED])
    return f"Create the vhosts on {broker} ({commands}{_more(vhosts, 'more vhost')}), or correct the paths of the URIs."


def _more(named: Sequence[str], what: str) -> str:
    more = len(named) - _MOST_NAMED
    return f" and {counted(more, what)}" if more > 0 else ""


def _rest(trouble: Trouble, error: str, others: Sequence[str]) -> str:
    """What the advice, which is about one error, doesn't say of other links."""
    if trouble in _NAMING:
        pattern, what = _NAMING[trouble]
        named = _named(pattern, error, others)
        if len(named) > 1:
            return f" All that is named: {', '.join(named[:_MOST_NAMED])}{_more(named, what)}."
    differing = sum(each != error for each in others) if trouble in _TOLD_ONE_BY_ONE else 0
    if not differing:
        return ""
    have = "has another error" if differing == 1 else "have other errors"
    return f" {counted(differing, 'more link')} {have}: `federation-agent links {_WHERE_DOWN}` shows them."


def _grant(missing: Sequence[Denied], broker: str, needs: Sequence[Need]) -> str:
    """What one user lacks in one vhost."""
    if not missing:
        return f"Give the user that the error names the missing permission on {broker}."
    user, vhost = missing[0].user, missing[0].vhost
    topics = dict.fromkeys(exchange for each in missing if (exchange := _exchange_of_topic(each)) is not None)
    others = [each for each in missing if _exchange_of_topic(each) is None]
    advised = [f"On {broker}, user {user!r} needs {_needs(missing)} in vhost {vhost!r}."]
    if others:
        advised.append(_set_permissions(others, user, vhost, needs))
    if topics:
        advised.append(_set_topic_permissions(tuple(topics), user, vhost))
    return " ".join(advised)


ALLOW_KEY: Final = "Allow that key there by `rabbitmqctl set_topic_permissions`."


def topic_advice(exchange: str, user: str, vhost: str) -> str:
    """What allows a routing key that a broker refused."""
    return _set_topic_permissions((exchange,), user, vhost)


def _exchange_of_topic(missing: Denied) -> str | None:
    """RabbitMQ asks for topic permissions besides those on the exchange, where there are any for user and exchange."""
    _, is_topic, exchange = missing.what.rpartition("' in exchange ")
    return exchange.strip(QUOTE) if is_topic else None


def _needs(missing: Sequence[Denied]) -> str:
    """The first few; the command is for all of them."""
    named = [
        "permissions" if each.what == "vhost" else f"{each.action or 'permission'} on {each.what}"
        for each in missing[:_MOST_NEEDS]
    ]
    more = len(missing) - _MOST_NEEDS
    return ", ".join(named) + (f" and {counted(more, 'more object')}" if more > 0 else "")


def _set_permissions(missing: Sequence[Denied], user: str, vhost: str, needs: Sequence[Need]) -> str:
    """The patterns that `check` advises, too; where it isn't known what links need, some that allow more."""
    if needs:
        refused = (Need(Permission(each.action or "configure"), _object_of(each), "") for each in missing)
        command, narrower = grant_command(vhost, user, (*needs, *(each for each in refused if each.on))), ""
    else:
        command = f"rabbitmqctl set_permissions -p {quote(vhost)} {quote(user)} {_configures(missing)} '.*' '.*'"
        narrower = ", or with narrower expressions for configure, write and read"
    return (
        f"Run `{command}`{narrower}. This replaces what `rabbitmqctl list_user_permissions {quote(user)}` shows, so "
        "repeat what is to stay."
    )


def _object_of(missing: Denied) -> str:
    return missing.what.partition(" ")[2].strip(QUOTE)


def _set_topic_permissions(exchanges: Sequence[str], user: str, vhost: str) -> str:
    commands = [
        f"`rabbitmqctl set_topic_permissions -p {quote(vhost)} {quote(user)} {quote(each)} '.*' '.*'`"
        for each in exchanges[:_MOST_NEEDS]
    ]
    more = len(exchanges) - _MOST_NEEDS
    rest = f", the same for {counted(more, 'more exchange')}" if more > 0 else ""
    return (
        f"Run {', '.join(commands)}{rest}, or with narrower expressions for write and read. This replaces what "
        f"`rabbitmqctl list_user_topic_permissions {quote(user)}` shows for that exchange, so repeat what is to stay."
    )


def _configures(missing: Sequence[Denied]) -> str:
    """What links declare, and what was refused; the beginning that all names share where they are many."""
    configured = (_object_of(each) for each in missing if each.action == "configure")
    names = sorted({each for each in configured if not each.startswith("federation")})
    if not names:
        return "'^federation'"
    if len(names) <= _MOST_NAMED:
        return quote(f"^(federation|{'|'.join(f'{escaped(each)}$' for each in names)})")
    shared = _shared_beginning(names[0], names[-1])
    return quote(f"^(federation|{escaped(shared)})") if shared else "'.*'"


def _shared_beginning(first: str, last: str) -> str:
    at = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:at]


_ALARM: Final = "Messages wait upstream; the links continue by themselves when it clears."
CLEARING: Final = {
    Trouble.MEMORY_ALARM: (
        "On {broker}, `rabbitmq-diagnostics memory_breakdown` shows what uses the memory: consume or purge queues, or "
        "raise vm_memory_high_watermark."
    ),
    Trouble.DISK_ALARM: (
        "On {broker}, free disk space until it is above disk_free_limit (`rabbitmq-diagnostics status`)."
    ),
}
_SLOW_PATH: Final = "look at the downstream's disks and CPU and at the path"
_RAISE_PREFETCH: Final = (
    "Raise `prefetch-count`, of a shovel `src-prefetch-count`, or remove it, and the agent adapts it to the path. If "
    f"the links still forward less than is published, {_SLOW_PATH}."
)
_ADVICE: Final = {
    **{trouble: f"{text} {_ALARM}" for trouble, text in CLEARING.items()},
    Trouble.BLOCKED: "On {broker}, `rabbitmq-diagnostics alarms` shows what blocks publishers. " + _ALARM,
    Trouble.NO_CONFIRMS: (
        "Messages wait and {broker} confirms none: look there for load, full queues and queues without a quorum."
    ),
    Trouble.BEHIND: (
        "More is published on {broker} than the links forward: compare their rates, " + _SLOW_PATH + ", and leave "
        "prefetch-count at auto."
    ),
    Trouble.EXCHANGE_DELETED: "Declare the exchanges again on {broker}, and their links begin anew.",
    Trouble.QUEUE_DELETED: "Declare the queues again on {broker}, and their links begin anew.",
    Trouble.PAUSED: (
        "Messages wait upstream. `federation-agent links --status paused` shows the reasons; resume those links whose "
        "reason is over."
    ),
    Trouble.UNREACHABLE: (
        "Check that {broker} runs and that the address in the error can be reached from the agent. It tries again by "
        "itself."
    ),
    Trouble.SILENT: (
        "{broker} takes connections and says nothing: it is frozen or overloaded, or the network swallows what "
        "is sent. Look at its CPU, memory and disks. If it has never answered, check that the address in the error is "
        "an AMQP port. The agent tries again by itself."
    ),
    Trouble.LOST: (
        "The network or {broker} ended the connection; the agent tries again by itself. If it lasts, read its log."
    ),
    Trouble.STOOD_STILL: (
        "{broker} did nothing for more than a second, or did not hear the downstream: links are given up then, as "
        "another agent of its group may run them. Its log says for how long it stood still. Look at the CPU that it is "
        "given: limits, other processes. It goes on by itself."
    ),
    Trouble.LOGIN: (
        "Correct user and password in the URI, or create the user on {broker}. The agent notices changed files."
    ),
    Trouble.NOT_FOUND: "Create on {broker} what the error names, or correct its name in the definition.",
    Trouble.INVALID: "Change the definition as the error says. The agent notices it; `restart` tries at once.",
    Trouble.OTHER: "The agent tries again by itself. If this lasts, read the log of {broker} around this time.",
}
_NAMING: Final = {Trouble.NOT_FOUND: (_MISSING, "more object"), Trouble.LOGIN: (_LOGIN, "more user")}
_TOLD_ONE_BY_ONE: Final = frozenset({*_NAMING, Trouble.INVALID, Trouble.OTHER})
_WHERE_DOWN: Final = f"--status {Status.INVALID} --status {Status.BACKOFF}"
