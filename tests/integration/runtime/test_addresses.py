"""`plan` of shovels with ends of AMQP 1.0: addresses are attached to, what is wrong is the reason, nothing changes."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from agent.core.links.plan import Outlook, PlannedLink
from tests.conftest import Borrowed
from tests.integration.runtime.planning import Pair, of_vhost, snapshot, told
from tests.lab.node import AMQP10_PLUGINS, Node


@pytest.fixture
def from_plugin(pair: Pair, broker_on: Callable[..., Node]) -> Iterator[Pair]:
    """Its upstream, which other tests have, too, has the plugin for AMQP 1.0."""
    there = broker_on(None, plugins=AMQP10_PLUGINS, name="amqp10")
    with there.admin.temporary_vhost(pair.vhost):
        there.admin.queue(pair.vhost, "a b")
        yield Pair(pair.directory, pair.here, there, pair.vhost)


def from_address(pair: Pair, address: str) -> dict[str, Any]:
    """To the queue `q` downstream."""
    source = {"src-protocol": "amqp10", "src-uri": pair.there.uri(pair.vhost), "src-address": address}
    return source | {"dest-uri": pair.here.uri(pair.vhost), "dest-queue": "q"}


def to_address(pair: Pair, address: str) -> dict[str, str]:
    """From the queue `a b` of the same broker, by AMQP 0-9-1."""
    uri = pair.there.uri(pair.vhost)
    return {"src-uri": uri, "src-queue": "a b", "dest-protocol": "amqp10", "dest-uri": uri, "dest-address": address}


async def planned(pair: Pair, shovels: Mapping[str, dict[str, Any]]) -> dict[str, PlannedLink]:
    before = snapshot(pair.here, pair.vhost), snapshot(pair.there, pair.vhost, is_shared=True)
    found = await pair.plan({"shovels": dict(shovels)})
    assert (snapshot(pair.here, pair.vhost), snapshot(pair.there, pair.vhost, is_shared=True)) == before
    return {each.link.name: each for each in of_vhost(found, pair.vhost)}


async def test_addresses_of_the_plugin(from_plugin: Pair) -> None:
    pair = from_plugin
    found = await planned(
        pair,
        {
            "exists": from_address(pair, "/amq/queue/a b"),
            "missing": from_address(pair, "/amq/queue/away"),
            "declares": from_address(pair, "/queue/new"),
            "leaves": from_address(pair, "/topic/a.#"),
            "new-form": from_address(pair, "/queues/a%20b"),
            "to": to_address(pair, "/amq/queue/a b"),
        },
    )
    assert {name for name, each in found.items() if each.outlook is Outlook.RUN} == {
        "exists",
        "declares",
        "leaves",
        "to",
    }
    assert told(found["exists"].actions) == [("create", "queue", "q")]
    assert told(found["to"].actions) == [("keep", "queue", "a b")], "each end is asked by its own protocol"
    where = f"shovel source 127.0.0.1:{pair.there.amqp_port}: attaching to"
    missing = f"{where} '/amq/queue/away': NOT_FOUND - no queue 'away' in vhost {pair.vhost!r}"
    assert (found["missing"].outlook, found["missing"].reason) == (Outlook.BACKOFF, missing)
    refused = found["new-form"]
    assert refused.outlook is Outlook.INVALID
    assert refused.reason.startswith(f"{where} '/queues/a%20b': COMMAND_INVALID - ")
    assert refused.reason.endswith(" takes '/amq/queue/a b'")


async def test_a_broker_without_the_plugin(pair: Pair) -> None:
    found = await planned(pair, {"s": from_address(pair, "/amq/queue/q")})
    assert found["s"].outlook is Outlook.INVALID
    assert "needs its plugin rabbitmq_amqp1_0" in found["s"].reason


@pytest.mark.versions
async def test_addresses_since_4_0(pair: Pair, borrowed: Borrowed) -> None:
    there = borrowed(release="sid")
    with there.admin.temporary_vhost(pair.vhost):
        there.admin.queue(pair.vhost, "a b")
        newer = Pair(pair.directory, pair.here, there, pair.vhost)
        found = await planned(
            newer,
            {
                "exists": from_address(newer, "/queues/a%20b"),
                "missing": from_address(newer, "/queues/away"),
                "waits": from_address(newer, "/queues/away") | {"src-predeclared": True},
                "old-form": from_address(newer, "/queue/a b"),
                "to": to_address(newer, "/exchanges/amq.topic/k"),
                "to-nothing": to_address(newer, "/exchanges/away/k"),
            },
        )
    assert {name for name, each in found.items() if each.outlook is Outlook.RUN} == {"exists", "missing", "to"}
    assert told(found["exists"].actions) == [("keep", "queue", "a b"), ("create", "queue", "q")]
    assert told(found["missing"].actions) == [("create", "queue", "away"), ("create", "queue", "q")]
    assert (found["waits"].outlook, "NOT_FOUND - queue 'away'" in found["waits"].reason) == (Outlook.BACKOFF, True)
    assert "NOT_FOUND - no exchange 'away' in vhost" in found["to-nothing"].reason
    assert found["old-form"].outlook is Outlook.INVALID
    assert found["old-form"].reason.endswith(" takes '/queues/a%20b'")
