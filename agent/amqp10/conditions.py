"""The error conditions of AMQP 1.0 as codes of 0-9-1, which the rest of the agent understands."""

from __future__ import annotations

from typing import Final, NamedTuple

from agent.amqp.wire.refusal_texts import is_forced
from agent.amqp10.performatives import Performed
from agent.amqp10.types import Value

_CLOSED: Final = (320, "CONNECTION_FORCED")
_CODES: Final = {
    "amqp:connection:forced": _CLOSED,
    "amqp:link:detach-forced": _CLOSED,
    "amqp:unauthorized-access": (403, "ACCESS_REFUSED"),
    "amqp:not-found": (404, "NOT_FOUND"),
    "amqp:resource-deleted": (404, "NOT_FOUND"),
    "amqp:resource-locked": (405, "RESOURCE_LOCKED"),
    "amqp:precondition-failed": (406, "PRECONDITION_FAILED"),
    "amqp:link:message-size-exceeded": (406, "PRECONDITION_FAILED"),
    "amqp:connection:framing-error": (501, "FRAME_ERROR"),
    "amqp:frame-size-too-small": (501, "FRAME_ERROR"),
    "amqp:decode-error": (406, "PRECONDITION_FAILED"),  # over a message
    "amqp:invalid-field": (503, "COMMAND_INVALID"),
    "amqp:resource-limit-exceeded": (506, "RESOURCE_ERROR"),
    "amqp:not-allowed": (530, "NOT_ALLOWED"),
    "amqp:not-implemented": (540, "NOT_IMPLEMENTED"),
    "amqp:internal-error": (541, "INTERNAL_ERROR"),
}
_WITHOUT_A_REASON: Final = "no reason is given"


class PeerRefusal(NamedTuple):
    """The reason why the peer ended something, as 0-9-1 says it; `condition` is AMQP 1.0's."""

    code: int
    text: str
    condition: str


def refusal_of(error: Performed | Value | None) -> PeerRefusal:
    """The refusal in the `error` of a detach, end or close. One without an error, or with one of another type than
    AMQP's, has no reason."""
    condition, text = "", ""
    if isinstance(error, Performed):
        condition, text = error["condition"], error["description"] or ""
    code, name = _CODES.get(condition, _CLOSED)
    if is_forced(text):  # no message is to blame
        code, name = _CLOSED
    said = text.removeprefix(f"{name} - ") or condition or _WITHOUT_A_REASON
    if condition and condition not in _CODES and said != condition:
        said = f"{said} ({condition})"
    return PeerRefusal(code, f"{name} - {said}", condition)
