"""Declaring, looking, binding and deleting."""

from __future__ import annotations

from typing import Any, Final

from agent.amqp.declares import NO_TYPE, is_replicated
from agent.amqp.wire import methods
from tests.contract.asking import OK, Asking, Release

NEW: Final = "ok, 0 messages, 0 consumers"
TYPES: Final = ("classic", "quorum", "stream")
UNKNOWN_TYPE: Final = {
    "3.10": "closed: 503 COMMAND_INVALID - unknown exchange type 'x-nobody-knows'",
    "3.13.3": "406 PRECONDITION_FAILED - unknown exchange type 'x-nobody-knows'",
}
TRANSIENT_NOT_EXCLUSIVE: Final = {"3.10": NEW}
"""As far as nobody configures otherwise; then from 4.3 on "closed: 541 INTERNAL_ERROR"."""
WITHOUT_A_TYPE: Final = {
    "3.10": "received none but current is the value '{}' of type 'longstr'",
    "4.0": "received 'classic' but current is '{}'",
}
CONSUMER_TIMEOUT: Final = {
    "classic": {
        "3.10": NEW,
        "4.3": "406 PRECONDITION_FAILED - invalid arg 'x-consumer-timeout' {} rabbit_classic_queue",
    },
    "quorum": {"3.10": NEW},
}
LIMITED: Final = {"x-queue-type": "quorum", "x-delivery-limit": -1}


def differs(name: str, argument: str, received: str, kind: str = "queue") -> str:
    return f"406 PRECONDITION_FAILED - inequivalent arg '{argument}' for {kind} '{name}' in vhost 'V': {received}"


async def test_queues_of_each_type(ask: Asking) -> None:
    """With the arguments that links give them."""
    own = {"x-internal-purpose": "federation", "x-expires": 60_000, "x-message-ttl": 60_000}
    alone = {"x-single-active-consumer": True}
    declared: dict[str, dict[str, Any]] = {
        "classic": {"x-queue-type": "classic"},
        "quorum": {"x-queue-type": "quorum"},
        "stream": {"x-queue-type": "stream"},
        "classic of a link": {"x-queue-type": "classic", **own},
        "quorum of a link": {"x-queue-type": "quorum", **own},
        "classic lease": {"x-queue-type": "classic", **alone},
        "quorum lease": {**LIMITED, **alone},
        "full": {"x-max-length": 1, "x-overflow": "reject-publish"},
    }
    assert {name: await ask.queue(name, each) for name, each in declared.items()} == dict.fromkeys(declared, NEW)
    assert {name: await ask.queue(name, each) for name, each in declared.items()} == dict.fromkeys(declared, NEW)


async def test_queues_that_pass(ask: Asking, release: Release) -> None:
    assert await ask(methods.QUEUE_DECLARE, exclusive=True, auto_delete=True) == NEW
    assert await ask.queue("auto", auto_delete=True) == NEW
    assert await ask.queue("transient", durable=False) == release.says(TRANSIENT_NOT_EXCLUSIVE)


async def test_what_no_replicated_queue_can_be(ask: Asking) -> None:
    flags = ({"durable": False}, {"exclusive": True}, {"auto_delete": True})
    words = ("non-durable", "exclusive-owner", "auto-delete")
    assert [await ask.queue("q", {"x-queue-type": kind}, **each) for kind in TYPES[1:] for each in flags] == 2 * [
        f"406 PRECONDITION_FAILED - invalid property '{word}' for queue 'q' in vhost 'V'" for word in words
    ]


async def test_a_queue_that_has_other_arguments(ask: Asking, release: Release) -> None:
    for kind in TYPES:
        name = f"other {kind}"
        await ask.queue(name, {"x-queue-type": kind})
        assert await ask.queue(name, {"x-queue-type": kind}, durable=False) == differs(
            name, "durable", "received 'false' but current is 'true'"
        )
        assert await ask.queue(name, {"x-queue-type": NO_TYPE}) == differs(
            name, "x-queue-type", f"received '{NO_TYPE}' but current is '{kind}'"
        )
        assert await ask.queue(name) == (
            NEW if kind == "classic" else differs(name, "x-queue-type", release.says(WITHOUT_A_TYPE).format(kind))
        )
    assert await ask.queue("other quorum", {"x-queue-type": "quorum", "x-expires": 60_000}) == differs(
        "other quorum", "x-expires", "received the value '60000' of type 'long' but current is none"
    )
    await ask.queue("typeless")
    assert await ask.queue("typeless", {"x-queue-type": "classic"}) == NEW


async def test_the_agent_learns_from_a_refusal_whether_a_queue_is_replicated(ask: Asking) -> None:
    """It declares nothing by that. Arguments that it didn't send are refused first, and a long name hides the end."""
    long = "a.long.name." + "n" * 200
    await ask.queue("plain")
    await ask.queue("passing", auto_delete=True)
    for kind in TYPES:
        await ask.queue(f"a {kind} one (1)", {"x-queue-type": kind})
    for each in ("limited", long):
        await ask.queue(each, {"x-queue-type": "quorum", "x-max-length": 5})
    owner = await (await ask.another()).channel()
    await owner.ask(methods.QUEUE_DECLARE, queue="own", exclusive=True)
    expected = {
        "a classic one (1)": False, "a quorum one (1)": True, "a stream one (1)": True, "plain": False,
        "passing": False, "own": False, "limited": None, long: None, "never": None, "ä" * 127: None,
    }  # fmt: skip
    connection = await ask.connection()
    assert {queue: await is_replicated(connection, queue) for queue in expected} == expected
    assert not connection.is_closed
    assert await ask.counted("never") == "404 NOT_FOUND - no queue 'never' in vhost 'V'"


async def test_arguments_that_no_queue_takes(ask: Asking) -> None:
    invalid = "406 PRECONDITION_FAILED - invalid arg '{}' for queue 'q' in vhost 'V'"
    assert await ask.queue("q", {"x-queue-type": NO_TYPE}) == (
        f"{invalid.format('x-queue-type')}: \"unsupported queue type '{NO_TYPE}'\""
    )
    assert await ask.queue("q", {"x-expires": "soon"}) == (
        f'{invalid.format("x-expires")}: "expected integer, got longstr"'
    )
    assert await ask.queue("q", {"x-queue-type": "classic", "x-delivery-limit": 5}) == (
        f"{invalid.format('x-delivery-limit')} of queue type rabbit_classic_queue"
    )
    assert await ask.queue("amq.mine") == "403 ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'"
    assert await ask.counted("q") == "404 NOT_FOUND - no queue 'q' in vhost 'V'"


async def test_a_timeout_of_consumers_as_an_argument(ask: Asking, release: Release) -> None:
    for kind, answers in CONSUMER_TIMEOUT.items():
        name = f"timed {kind}"
        found = await ask.queue(name, {"x-queue-type": kind, "x-consumer-timeout": 1_000})
        assert found == release.says(answers).format(f"for queue '{name}' in vhost 'V' of queue type")


async def test_looking_at_queues(ask: Asking) -> None:
    """By the name alone: type, flags and arguments aren't compared."""
    await ask.queue("there", {"x-queue-type": "stream"})
    assert await ask.counted("there") == NEW
    assert await ask.counted("missing") == "404 NOT_FOUND - no queue 'missing' in vhost 'V'"
    owner = await (await ask.another()).channel()
    await owner.ask(methods.QUEUE_DECLARE, queue="another's", exclusive=True)
    assert await ask.counted("another's") == (
        "405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'another's' in vhost 'V'. It could be "
        "originally declared on another connection or the exclusive property value does not match that of the "
        "original declaration."
    )


async def test_exchanges_of_each_type(ask: Asking, release: Release) -> None:
    for kind in ("direct", "fanout", "topic", "headers"):
        assert [await ask.exchange(kind, kind), await ask.exchange(kind, kind)] == [OK, OK]
    assert await ask.exchange("odd", "x-nobody-knows") == release.says(UNKNOWN_TYPE)
    internal = {"internal": True, "auto_delete": True}
    assert await ask.exchange("internal", "fanout", {"x-internal-purpose": "federation"}, **internal) == OK


async def test_an_exchange_that_is_another(ask: Asking) -> None:
    await ask.exchange("x", "direct")
    assert await ask.exchange("x", "topic") == differs(
        "x", "type", "received 'topic' but current is 'direct'", "exchange"
    )
    assert await ask.exchange("x", "direct", durable=False) == differs(
        "x", "durable", "received 'false' but current is 'true'", "exchange"
    )
    assert await ask.exchange("x", "direct", {"alternate-exchange": "a"}) == differs(
        "x", "alternate-exchange", "received the value 'a' of type 'longstr' but current is none", "exchange"
    )
    reserved = "403 ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'"
    assert await ask.exchange("amq.mine", "direct") == reserved
    assert await ask.exchange("", "direct") == "403 ACCESS_REFUSED - operation not permitted on the default exchange"


async def test_looking_at_exchanges(ask: Asking) -> None:
    """By the name alone, too; the type need not even be known, nor be there."""
    await ask.exchange("there", "headers", auto_delete=True)
    for kind in ("headers", "topic", "x-nobody-knows", ""):
        assert await ask.exchange("there", kind, passive=True) == OK
        assert await ask.exchange("gone", kind, passive=True) == "404 NOT_FOUND - no exchange 'gone' in vhost 'V'"
    assert await ask.exchange("amq.topic", "fanout", passive=True) == OK
    assert await ask.exchange("", "direct", passive=True) == (
        "403 ACCESS_REFUSED - operation not permitted on the default exchange"
    )


async def test_bindings(ask: Asking) -> None:
    """Repeated they are the same one, and removing one that isn't there does no harm."""
    await ask.exchange("bound", "fanout")
    missing = "404 NOT_FOUND - no exchange 'gone' in vhost 'V'"
    to_bound = {"destination": "bound", "source": "amq.topic"}
    assert [await ask(methods.EXCHANGE_BIND, **to_bound, routing_key="k") for _ in range(2)] == [OK, OK]
    assert await ask(methods.EXCHANGE_BIND, destination="bound", source="gone") == missing
    assert await ask(methods.EXCHANGE_BIND, destination="gone", source="amq.topic") == missing
    assert await ask(methods.EXCHANGE_UNBIND, **to_bound, routing_key="another") == OK
    assert await ask(methods.EXCHANGE_UNBIND, destination="gone", source="amq.topic") == OK
    assert await ask.bind("amq.topic", "gone") == "404 NOT_FOUND - no queue 'gone' in vhost 'V'"
    await ask.queue("to bind")
    assert await ask.bind("gone", "to bind") == missing
    assert await ask(methods.EXCHANGE_BIND, destination="bound", source="") == (
        "403 ACCESS_REFUSED - operation not permitted on the default exchange"
    )


async def test_deleting_queues(ask: Asking) -> None:
    """Of quorum queues a broker takes no conditions."""
    assert await ask(methods.QUEUE_DELETE, queue="gone") == "ok, 0 messages"
    for kind in ("classic", "quorum"):
        await ask.queue(name := f"{kind} to delete", {"x-queue-type": kind})
        assert await ask.publish("", name) == "ack"
        unsupported = (
            f"closed: 540 NOT_IMPLEMENTED - cannot delete queue '{name}' in vhost 'V'. queue.delete operations with "
            "if-{} flag set are not supported by quorum queues"
        )
        full = f"406 PRECONDITION_FAILED - queue '{name}' in vhost 'V' not empty"
        used = f"406 PRECONDITION_FAILED - queue '{name}' in vhost 'V' in use"
        is_quorum = kind == "quorum"
        assert await ask(methods.QUEUE_DELETE, queue=name, if_empty=True) == (
            unsupported.format("empty") if is_quorum else full
        )
        line = await ask.line()
        await line.consume(name, "user")
        assert await ask(methods.QUEUE_DELETE, queue=name, if_unused=True) == (
            unsupported.format("unused") if is_quorum else used
        )
        assert (await ask(methods.QUEUE_DELETE, queue=name)).startswith(OK)


async def test_deleting_exchanges(ask: Asking) -> None:
    """One with auto-delete goes with the last binding from it: so a link notices that its exchange was deleted."""
    assert await ask(methods.EXCHANGE_DELETE, exchange="gone") == OK
    await ask.exchange("canary", "fanout", auto_delete=True, internal=True)
    await ask.exchange("watched", "fanout")
    await ask(methods.EXCHANGE_BIND, destination="watched", source="canary")
    assert await ask(methods.EXCHANGE_DELETE, exchange="canary", if_unused=True) == (
        "406 PRECONDITION_FAILED - exchange 'canary' in vhost 'V' in use"
    )
    assert await ask(methods.EXCHANGE_DELETE, exchange="watched") == OK
    gone = "404 NOT_FOUND - no exchange 'canary' in vhost 'V'"
    assert await ask.exchange("canary", "fanout", passive=True) == gone
    await ask.exchange("internal one", "fanout", auto_delete=True, internal=True)
    await ask.exchange("source", "fanout")
    await ask(methods.EXCHANGE_BIND, destination="internal one", source="source")
    await ask(methods.EXCHANGE_DELETE, exchange="source")
    assert await ask.exchange("internal one", "fanout", passive=True) == OK
