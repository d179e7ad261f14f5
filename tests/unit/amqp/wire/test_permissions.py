"""A refusal names the permission that is missing, also where the broker doesn't."""

from __future__ import annotations

from typing import Any

import pytest

from agent.amqp.wire import methods
from agent.amqp.wire.methods import Method
from agent.amqp.wire.permissions import refuses_topic, with_permission

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


def test_a_refused_exchange_is_no_refused_key() -> None:
    assert not refuses_topic(REFUSED.format("exchange 'access to topic 'k''"), {"routing_key": "k"})
