"""The kinds of trouble, told from a link's status and error, and what an operator can do about each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from shlex import quote
from typing import Final

from agent.core.check.permissions import escaped
from agent.core.links.lifecycle import Status


class Trouble(StrEnum):
    """Its value is how it is called."""

    MEMORY_ALARM = "memory alarm"
    DISK_ALARM = "disk alarm"
    BLOCKED = "publishers blocked"
    NO_CONFIRMS = "nothing confirmed"
    PAUSED = "paused for long"
    BEHIND = "further behind than lag-critical"
    UNREACHABLE = "unreachable"
    LOST = "connection lost"
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


QUOTE: Final = "'"
_LONGEST: Final = 4_000  # of an error that is searched
_DENIED: Final = re.compile(
    r"(?:\b(configure|write|read) )?access to (?:\b(configure|write|read) )?"
    r"((?:exchange|queue|topic)\b.{0,600}?) in vhost '([^']{0,255})' refused for user '([^']{0,255})'"
)
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
    Trouble.NO_VHOST: ("does not exist: create it there", "vhost not found"),
    Trouble.NOT_FOUND: ("NOT_FOUND", "no queue '", "no exchange '"),
}
_BY_REASON: Final = {"unreachable": Trouble.UNREACHABLE, "lost": Trouble.LOST, "heartbeat": Trouble.LOST}


def advice(trouble: Trouble, broker: str, error: str) -> str:
    if trouble is Trouble.PERMISSION:
        return _grant(denied(error), broker)
    if trouble is Trouble.BEHIND and error:
        return f"Look first at what holds the links up: {error}."
    return _ADVICE[trouble].format(broker=broker)


def _grant(missing: Denied | None, broker: str) -> str:
    if missing is None:
        return f"Give the user that the error names the missing permission on {broker}."
    whose = f"-p {quote(missing.vhost)} {quote(missing.user)}"
    needs = f"{missing.action or 'permission'} on {missing.what}" if missing.what != "vhost" else "permissions"
    lacks = f"On {broker}, user {missing.user!r} needs {needs} in vhost {missing.vhost!r}."
    _, is_topic, exchange = missing.what.rpartition("' in exchange ")
    if is_topic:
        # RabbitMQ asks for these besides the permissions on the exchange, where there are any for user and exchange.
        return (
            f"{lacks} Run `rabbitmqctl set_topic_permissions {whose} {quote(exchange.strip(QUOTE))} WRITE READ` with "
            f"regular expressions that match it, for example '.*' '.*'. This replaces what `rabbitmqctl "
            f"list_user_topic_permissions {quote(missing.user)}` shows for that exchange, so repeat what is to stay."
        )
    return (
        f"{lacks} Run `rabbitmqctl set_permissions {whose} CONFIGURE WRITE READ` with regular "
        f"expressions that match it, for example {_configures(missing)} '.*' '.*'. This replaces what "
        f"`rabbitmqctl list_user_permissions {quote(missing.user)}` shows, so repeat what is to stay."
    )


def _configures(missing: Denied) -> str:
    """What a link declares, and what was refused."""
    _, _, name = missing.what.partition(" ")
    name = name.strip(QUOTE)
    if missing.action != "configure" or name.startswith("federation"):
        return "'^federation'"
    return quote(f"^(federation|{escaped(name)}$)")


_ALARM: Final = "Messages wait upstream; the links continue by themselves when it clears."
_ADVICE: Final = {
    Trouble.MEMORY_ALARM: (
        "On {broker}, `rabbitmq-diagnostics memory_breakdown` shows what uses the memory: consume or purge queues, or "
        "raise vm_memory_high_watermark. " + _ALARM
    ),
    Trouble.DISK_ALARM: (
        "On {broker}, free disk space until it is above disk_free_limit (`rabbitmq-diagnostics status`). " + _ALARM
    ),
    Trouble.BLOCKED: "On {broker}, `rabbitmq-diagnostics alarms` shows what blocks publishers. " + _ALARM,
    Trouble.NO_CONFIRMS: (
        "Messages wait and {broker} confirms none: look there for load, full queues and queues without a quorum."
    ),
    Trouble.BEHIND: (
        "More is published on {broker} than the links forward: compare their rates, look at the downstream's disks and "
        "CPU and at the path, and leave prefetch-count at auto."
    ),
    Trouble.PAUSED: "Messages wait upstream. Run `federation-agent resume` if the reason in the error is over.",
    Trouble.UNREACHABLE: (
        "Check that {broker} runs and that the address in the error can be reached from the agent. It tries again by "
        "itself."
    ),
    Trouble.LOST: (
        "The network or {broker} ended the connection; the agent tries again by itself. If it lasts, read its log."
    ),
    Trouble.LOGIN: (
        "Correct user and password in the URI, or create the user on {broker}. The agent notices changed files."
    ),
    Trouble.NO_VHOST: "Create the vhost on {broker} (`rabbitmqctl add_vhost`), or correct the path of the URI.",
    Trouble.NOT_FOUND: "Create on {broker} what the error names, or correct its name in the definition.",
    Trouble.INVALID: "Change the definition as the error says. The agent notices it; `restart` tries at once.",
    Trouble.OTHER: "The agent tries again by itself. If this lasts, read the log of {broker} around this time.",
}
