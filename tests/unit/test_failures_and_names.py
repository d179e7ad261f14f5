"""Names are chosen by tenants and texts by peers: whatever they say, they don't change what is taken for the cause."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from hypothesis import example, given
from hypothesis import strategies as st

import agent
from agent.amqp.connect import Connection
from agent.amqp.failures import opening_failed
from agent.amqp.rpc import refusal
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.ends import ConnectionClosedError
from agent.amqp.wire.login import Terms
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import Mechanism
from agent.core.links import lifecycle
from agent.core.links.lifecycle import LinkState, Status
from agent.core.status.causes import LinkFacts, causes_of
from agent.errors import BrokerError, FailureKind, PermanentError, Side, TransientError


def phrases() -> Iterator[str]:
    """What appears in any of our messages."""
    for path in Path(next(iter(agent.__path__))).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
                yield node.value
    yield "connection limit (5) is reached"
    yield "' in exclusive use"


# Deferred: each worker imports this file, and one of them runs it.
PHRASES = st.deferred(lambda: st.sampled_from(sorted(set(phrases()))))
NAMES = st.lists(PHRASES, min_size=1, max_size=3).map(lambda found: "".join(found)[:200])


class Somewhere:
    where = "upstream x"


def cause_of(error: BrokerError) -> tuple[str, FailureKind]:
    """The side and the trouble that an operator is shown for a link that fails so."""
    state = LinkState()
    for event in (lifecycle.Signal.START, lifecycle.Failed(str(error), error.failure)):
        state, _ = lifecycle.step(state, event)
    assert state.status in {Status.BACKOFF, Status.INVALID}
    [cause] = causes_of([LinkFacts("1", state.status, state.failure, state.error, "dc1", 0.0)], downstream="dc2")
    return cause.side, cause.trouble


def refused(code: int, text: str, *, permanent: bool, side: Side) -> BrokerError:
    closed = ChannelClosedError(code, text, login="u", vhost="v")
    closed.side = side
    found = refusal(cast("Connection", Somewhere()), "declaring", closed)
    assert isinstance(found, PermanentError) is permanent
    return found


@given(NAMES, st.sampled_from(Side))
def test_the_name_of_an_object_decides_nothing(name: str, side: Side) -> None:
    denied = f"ACCESS_REFUSED - configure access to exchange '{name}' in vhost 'v' refused for user 'u'"
    missing = f"NOT_FOUND - no exchange '{name}' in vhost 'v'"
    differs = f"PRECONDITION_FAILED - inequivalent arg 'type' for exchange '{name}' in vhost 'v': received 'x'"
    locked = f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{name}' in vhost 'v'"
    assert cause_of(refused(403, denied, permanent=True, side=side)) == (side, FailureKind.PERMISSION)
    assert cause_of(refused(404, missing, permanent=False, side=side)) == (side, FailureKind.NOT_FOUND)
    assert cause_of(refused(406, differs, permanent=True, side=side)) == (side, FailureKind.INVALID)
    assert cause_of(refused(405, locked, permanent=False, side=side)) == (side, FailureKind.OTHER)
    facts = refused(403, denied, permanent=True, side=side).failure
    assert (facts.object_type, facts.permission, facts.user, facts.vhost) == ("exchange", "configure", "u", "v")
    assert facts.object == name


@given(NAMES)
@example("connection limit (5) is reached")
def test_nor_does_that_of_a_vhost_or_a_user(name: str) -> None:
    def opening(code: int, text: str, user: str = name, mechanism: Mechanism = Mechanism.PLAIN) -> FailureKind:
        terms = Terms("upstream x h:5672", name, user, Secret(""), (mechanism,), 10)
        return opening_failed(ConnectionClosedError(code, text), terms, mechanism, None).failure.kind

    assert opening(530, f"NOT_ALLOWED - vhost {name} not found") is FailureKind.NO_VHOST
    assert opening(530, f"NOT_ALLOWED - access to vhost '{name}' refused for user '{name}'") is FailureKind.PERMISSION
    certified = name.replace("'", "")
    of_certificate = f"NOT_ALLOWED - access to vhost '{name}' refused for user 'CN={certified}'"
    assert opening(530, of_certificate, "guest", Mechanism.EXTERNAL) is FailureKind.PERMISSION
    assert opening(403, "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN") is FailureKind.LOGIN


@given(NAMES, st.sampled_from(Side))
def test_nor_does_the_text_of_a_peer(text: str, side: Side) -> None:
    error = TransientError(f"{side} x: the broker closed the connection: {text}")
    error.__cause__, error.side = ConnectionClosedError(320, text), side
    assert cause_of(error) == (side, FailureKind.OTHER)
