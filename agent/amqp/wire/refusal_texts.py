"""Reads the texts with which brokers refuse something. They are read here and nowhere else: only they name the object,
before 4.0 none names the permission that is missing, and one code stands for several reasons.

A name in a text is a tenant's, and may read like a reason: so only what comes before and after names decides.

Why: docs/decisions/0040-failures-are-values.md
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from agent.amqp.wire import methods
from agent.errors import Failure, FailureKind

ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
_OBJECT: Final = re.compile(r"(ACCESS_REFUSED - )access to (exchange|queue) '(.{0,255}?)' in vhost ")
_TOPIC: Final = re.compile(r"(ACCESS_REFUSED - )access to topic '")
_REFUSED_TOPIC: Final = re.compile(r"ACCESS_REFUSED - (?:(?:read|write) )?access to topic '")
BACKEND_FAILED: Final = "returned an error"  # whom the broker asks for permissions, such as a directory
_DENIED: Final = re.compile(r"ACCESS_REFUSED - (?:(configure|write|read) )?access to (exchange|queue|topic) '")
_MISSING: Final = re.compile(r"NOT_FOUND - no (exchange|queue) '")
_BEFORE_USER: Final = "' refused for user '"
_BEFORE_BACKEND: Final = "', backend "
_BEFORE_VHOST: Final = "' in vhost '"
_BEFORE_EXCHANGE: Final = "' in exchange '"
_OF_TOPIC: Final = {
    methods.EXCHANGE_BIND.ids: "read",
    methods.EXCHANGE_UNBIND.ids: "read",
    methods.QUEUE_BIND.ids: "read",
    methods.BASIC_PUBLISH.ids: "write",
}
_ALWAYS: Final = {
    (methods.EXCHANGE_DECLARE.ids, "exchange"): "configure",
    (methods.EXCHANGE_DELETE.ids, "exchange"): "configure",
    (methods.QUEUE_DECLARE.ids, "queue"): "configure",
    (methods.QUEUE_DELETE.ids, "queue"): "configure",
    (methods.QUEUE_BIND.ids, "queue"): "write",
    (methods.QUEUE_BIND.ids, "exchange"): "read",
    (methods.BASIC_CONSUME.ids, "queue"): "read",
    (methods.BASIC_GET.ids, "queue"): "read",
    (methods.BASIC_PUBLISH.ids, "exchange"): "write",
}
_BETWEEN_EXCHANGES: Final = frozenset({methods.EXCHANGE_BIND.ids, methods.EXCHANGE_UNBIND.ids})
_NO_VHOST: Final = "NOT_ALLOWED - vhost "
_NO_ACCESS: Final = "NOT_ALLOWED - access to vhost "
_LIMIT: Final = re.compile(r"limit \(\d+\) is reached$")
_ONLY_LOCAL: Final = "can only connect via localhost"
_USER_ID: Final = "ACCESS_REFUSED - user_id property set to "
_CONSUMED: Final = "ACCESS_REFUSED - queue '"
_UNLIKE: Final = re.compile(r"PRECONDITION_FAILED - inequivalent arg '([^']*)'")
_LARGER: Final = re.compile(
    r"PRECONDITION_FAILED - message size \d+ is larger than (?:configured )?max size (\d{1,15})"
)
_NO_PRIORITY: Final = re.compile(r"'x-priority'.* of queue type rabbit_stream_queue$", re.DOTALL)
_FORCED: Final = "Connection forced"
REPLICATED: Final = frozenset({"quorum", "stream"})


class OpeningRefusal(StrEnum):
    """The reasons for which a broker opens no connection."""

    NO_VHOST = "no vhost"
    NO_ACCESS = "no access"
    LIMIT = "limit"
    ONLY_LOCAL = "only local"
    LOGIN = "login"
    OTHER = "other"


def opening_refusal(code: int, text: str, *, user: str, vhost: str) -> OpeningRefusal:
    """The reason for a refusal while a connection of the user is being opened."""
    unnamed = text.replace(f"'{vhost}'", "''", 1).replace(f"'{user}'", "''", 1)
    if code == NOT_ALLOWED and text.startswith(_NO_VHOST):
        return OpeningRefusal.NO_VHOST
    if _LIMIT.search(unnamed.rpartition("'")[2]):  # behind a certificate's name, too
        return OpeningRefusal.LIMIT
    if code == ACCESS_REFUSED:
        return OpeningRefusal.ONLY_LOCAL if unnamed.endswith(_ONLY_LOCAL) else OpeningRefusal.LOGIN
    if code == NOT_ALLOWED and text.startswith(_NO_ACCESS) and not backend_failed(unnamed):
        return OpeningRefusal.NO_ACCESS
    return OpeningRefusal.OTHER


def alarm_of(reason: str) -> FailureKind:
    """The kind of alarm that makes a broker take no messages, by its own reason: `low on memory`, `low on disk`, `low
    on memory & disk`."""
    if "memory" in reason:
        return FailureKind.MEMORY_ALARM
    return FailureKind.DISK_ALARM if "disk" in reason else FailureKind.BLOCKED


def facts_of(code: int, text: str, *, login: str, vhost: str) -> Failure:
    """The facts of a refusal, with a text as `with_permission` returns it: the code and the beginning of the text
    decide, and no name is part of these. `login` is the user if the text names none."""
    if code == ACCESS_REFUSED and (found := _DENIED.match(text)) is not None:
        name, user = text[found.end() :].rpartition(_BEFORE_VHOST)[0], user_of(text)
        if found[2] == "topic":
            name = name.rpartition(_BEFORE_EXCHANGE)[2]
        return Failure(
            FailureKind.PERMISSION,
            user=user or login,
            vhost=vhost,
            object=name,
            object_type=found[2],
            permission=found[1] or "",
        )
    if code == NOT_FOUND:
        found = _MISSING.match(text)
        name, kind = ("", "") if found is None else (text[found.end() :].rpartition(_BEFORE_VHOST)[0], found[1])
        return Failure(FailureKind.NOT_FOUND, user=login, vhost=vhost, object=name, object_type=kind)
    return Failure(FailureKind.CLOSED, user=login, vhost=vhost)


def user_of(text: str) -> str:
    """The user that a refusal names; empty if a long name leaves no room for that. A backend's error may follow."""
    _, is_named, who = text.rpartition(_BEFORE_USER)
    return who.partition(_BEFORE_BACKEND)[0].removesuffix("'") if is_named else ""


def backend_failed(text: str) -> bool:
    """True if a refusal says that it couldn't be found out whether the user has the permission."""
    return BACKEND_FAILED in text.rpartition(_BEFORE_USER)[2].partition(_BEFORE_BACKEND)[2]


def with_permission(text: str, ids: tuple[int, int], values: Mapping[str, Any]) -> str:
    """The broker's refusal of the method `ids`, with the permission that is missing, if that is certain; `values` are
    those of the request."""
    found = _OBJECT.match(text)
    if found is not None:
        permission = _permission(ids, found[2], found[3], values)
    elif (found := _TOPIC.match(text)) is not None:
        permission = _OF_TOPIC.get(ids, "")
    else:
        return text
    return f"{found[1]}{permission} {text[found.end(1) :]}" if permission else text


def refuses_topic(text: str, values: Mapping[str, Any]) -> bool:
    """True if it is the routing key that may not be used: no code or field says so. Users choose keys, so text in the
    key doesn't count."""
    found = _REFUSED_TOPIC.match(text)
    return found is not None and BACKEND_FAILED not in text[found.end() + len(values.get("routing_key", "")) :]


def is_over_user_id(code: int, text: str) -> bool:
    """True if a message may not bear the user id that it has."""
    return code == ACCESS_REFUSED and text.startswith(_USER_ID)


def is_consumed_by_another(code: int, text: str) -> bool:
    """True if another consumer has the queue for itself. Only the beginning of the text is compared, as a long name
    leaves no room for the rest; a missing permission has another text."""
    return code == ACCESS_REFUSED and text.startswith(_CONSUMED)


def is_stream_refusing_priority(code: int, text: str) -> bool:
    """True if a stream refuses a consumer's priority. A long name leaves no room for the queue's type."""
    return code == PRECONDITION_FAILED and _NO_PRIORITY.search(text) is not None


def unlike(text: str) -> str:
    """The property or argument in which a queue or exchange differs from a declare that was refused; empty if it is
    another refusal."""
    found = _UNLIKE.match(text)
    return found[1] if found is not None else ""


def is_stream(text: str) -> bool:
    """True if a declare of another type was refused because the queue is a stream."""
    return text.endswith("but current is 'stream'")


def shows_replication(text: str, queue: str, vhost: str) -> bool | None:
    """True if the text of a refusal shows that the queue is replicated, None if it shows neither. Replicated queues are
    durable, and never deleted automatically."""
    where = re.escape(f"for queue '{queue}' in vhost '{vhost}': ")
    if re.search(f"inequivalent arg '(durable|auto_delete)' {where}", text):
        return False
    found = re.search(f"inequivalent arg 'x-queue-type' {where}received .* but current is (?:none|'([a-z_]+)')$", text)
    return None if found is None else found[1] in REPLICATED


def is_in_use(text: str) -> bool:
    """True if a queue wasn't deleted since it has consumers."""
    return text.endswith("in use")


def is_not_empty(text: str) -> bool:
    """True if a queue wasn't deleted since it has messages."""
    return text.endswith("not empty")


def largest_taken(text: str) -> int | None:
    """The largest body that the broker takes; None if it closed the channel over something else."""
    found = _LARGER.match(text)
    return None if found is None else int(found[1])


def is_forced(text: str) -> bool:
    """True if an operator closed the connection: by AMQP 1.0 RabbitMQ calls it an internal error."""
    return text.startswith(_FORCED)


def _permission(ids: tuple[int, int], kind: str, name: str, values: Mapping[str, Any]) -> str:
    if ids in _BETWEEN_EXCHANGES and kind == "exchange":
        sides = {values.get("destination"): "write", values.get("source"): "read"}
        return sides.get(name, "")
    given = values.get(kind)
    # What a declaration refers to, such as a dead-letter exchange, needs other permissions than what it declares.
    is_other = ids in {methods.EXCHANGE_DECLARE.ids, methods.QUEUE_DECLARE.ids} and given is not None and given != name
    return "" if is_other else _ALWAYS.get((ids, kind), "")
