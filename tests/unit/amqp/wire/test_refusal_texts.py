"""A refusal names the permission that is missing, also where the broker doesn't."""

from __future__ import annotations

from typing import Any

import pytest

from agent.amqp.wire import methods
from agent.amqp.wire.methods import Method
from agent.amqp.wire.refusal_texts import facts_of, refuses_topic, with_permission
from agent.errors import Failure, FailureKind

REFUSED = "ACCESS_REFUSED - access to {} in vhost 'v' refused for user 'u'"


@pytest.mark.parametrize(
    ("method", "values", "what", "permission"),
    [
        (methods.QUEUE_DECLARE, {"queue": "q"}, "queue 'q'", "configure"),
        (methods.EXCHANGE_DECLARE, {"exchange": "x"}, "exchange 'x'", "configure"),
        (methods.EXCHANGE_DELETE, {"exchange": "x"}, "exchange 'x'", "configure"),
        (methods.QUEUE_BIND, {"queue": "q", "exchange": "x"}, "queue 'q'", "write"),
        (methods.QUEUE_BIND, {"queue": "q", "exchange": "x"}, "exchange 'x'", "read"),
        (methods.EXCHANGE_BIND, {"destination": "to", "source": "from"}, "exchange 'to'", "write"),
        (methods.EXCHANGE_BIND, {"destination": "to", "source": "from"}, "exchange 'from'", "read"),
        (methods.EXCHANGE_BIND, {"destination": "to", "source": "from"}, "topic 'k' in exchange 'from'", "read"),
        (methods.BASIC_CONSUME, {"queue": "q"}, "queue 'q'", "read"),
        (methods.BASIC_PUBLISH, {}, "exchange 'x'", "write"),
        (methods.BASIC_PUBLISH, {}, "topic 'k' in exchange 'x'", "write"),
    ],
)
def test_what_is_missing(method: Method, values: dict[str, Any], what: str, permission: str) -> None:
    found = with_permission(REFUSED.format(what), method.ids, values)
    assert found == f"ACCESS_REFUSED - {permission} access to {what} in vhost 'v' refused for user 'u'"
    assert with_permission(found, method.ids, values) == found  # a broker that names it itself


@pytest.mark.parametrize(
    ("method", "values", "what"),
    [
        (methods.QUEUE_DECLARE, {"queue": "q"}, "exchange 'dead'"),
        (methods.EXCHANGE_DECLARE, {"exchange": "x"}, "exchange 'alternate'"),
        (methods.EXCHANGE_BIND, {}, "exchange 'x'"),
        (methods.BASIC_ACK, {}, "queue 'q'"),
    ],
)
def test_what_is_not_certain_is_left_out(method: Method, values: dict[str, Any], what: str) -> None:
    assert with_permission(REFUSED.format(what), method.ids, values) == REFUSED.format(what)


@pytest.mark.parametrize("action", ["", "read "])
@pytest.mark.parametrize("key", ["k", "a.#", "returned an error", "k' in exchange 'x' in vhost"])
def test_a_refused_key(action: str, key: str) -> None:
    refused = f"ACCESS_REFUSED - {action}access to topic '{key}' in exchange 'x' in vhost 'v' refused for user 'u'"
    values = {"source": "x", "routing_key": key}
    assert refuses_topic(refused, values)
    assert refuses_topic(refused[: 40 + len(key)], values)  # where a long key leaves no room for the rest
    assert not refuses_topic(f"{refused}, backend rabbit_auth_backend_ldap returned an error: timeout", values)


def test_a_key_that_reads_like_another_refusal() -> None:
    key = "access to exchange 'x' in vhost "
    text = f"ACCESS_REFUSED - access to topic '{key}' in exchange 'x' in vhost 'v' refused for user 'u'"
    expected = text.replace("access to topic", "write access to topic")
    assert with_permission(text, methods.BASIC_PUBLISH.ids, {"exchange": "x", "routing_key": key}) == expected


def test_a_refused_exchange_is_no_refused_key() -> None:
    assert not refuses_topic(REFUSED.format("exchange 'access to topic 'k''"), {"routing_key": "k"})


@pytest.mark.parametrize(
    ("code", "text", "facts"),
    [
        (403, REFUSED.format("queue 'q'"), {"kind": FailureKind.PERMISSION, "object": "q", "object_type": "queue"}),
        (
            403,
            "ACCESS_REFUSED - read access to topic 'k' in exchange 'x y' in vhost 'v' refused for user 'u'",
            {"kind": FailureKind.PERMISSION, "object": "x y", "object_type": "topic", "permission": "read"},
        ),
        (
            403,
            "ACCESS_REFUSED - access to queue 'q' in vhost 'v' refused for user 'CN=agent,O=x'",
            {"kind": FailureKind.PERMISSION, "object": "q", "object_type": "queue", "user": "CN=agent,O=x"},
        ),
        (
            403,
            REFUSED.format("queue 'q'").replace("'u'", "'other', backend ldap returned an error: 'x'"),
            {"kind": FailureKind.PERMISSION, "object": "q", "object_type": "queue", "user": "other"},
        ),
        (
            403,
            f"ACCESS_REFUSED - access to queue '{'q' * 200}",
            {"kind": FailureKind.PERMISSION, "object_type": "queue"},
        ),
        (403, "ACCESS_REFUSED - queue 'q' in vhost 'v' in exclusive use", {"kind": FailureKind.CLOSED}),
        (404, "NOT_FOUND - no queue 'q' in vhost 'v'", {"object": "q", "object_type": "queue"}),
        (404, "refused, and with names as long as these the broker can't send why", {}),
    ],
)
def test_what_a_refusal_says(code: int, text: str, facts: dict[str, Any]) -> None:
    expected = {"kind": FailureKind.NOT_FOUND, "user": "u", "vhost": "v"} | facts
    assert facts_of(code, text, login="u", vhost="v") == Failure(**expected)
