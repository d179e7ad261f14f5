"""What all links of an agent share, where they are very many."""

from __future__ import annotations

from agent.core.addresses.uri import parse
from agent.links.brokers import APART_AT_ONCE, Brokers
from agent.links.ends import End


def end(*uris: str) -> End:
    return End("upstream origin", tuple(map(parse, uris)))


def brokers() -> Brokers:
    return Brokers((), "here", stall_after=30)


async def test_links_of_one_broker_have_one_gate_whatever_vhost_they_are_in() -> None:
    shared = brokers()
    gate = shared.gate(end("amqp://there/a", "amqp://beside/a"))
    assert shared.gate(end("amqp://beside/b", "amqp://user:secret@there/b")) is gate
    assert shared.gate(end("amqp://there/a")) is not gate


async def test_few_links_have_connections_of_their_own_at_a_time() -> None:
    shared = brokers()
    assert all(shared.may_be_apart(str(number), 0.0, 10.0) for number in range(APART_AT_ONCE))
    assert not shared.may_be_apart("another", 0.0, 10.0)
    assert shared.may_be_apart("0", 0.0, 10.0)
    assert shared.may_be_apart("another", 10.0, 20.0)
