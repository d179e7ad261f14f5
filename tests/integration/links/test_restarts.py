"""A broker restarts under links of every kind at once: nothing is lost, and each goes on by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Named
from tests.integration.federation.sites import Site, X, federated
from tests.integration.queue_links.scene import NO_CONSUMERS, User, declare, queue, wait_error
from tests.integration.shovels.shoveling import named, shovel
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

TRANSIENT, CLASSIC, QUORUM = "fed.transient", "work.classic", "work.quorum"

ProxyTo = Callable[[Node | int], Proxy]


def sections(here: Site, there: Site, there_uri: str) -> dict[str, Any]:
    """Two exchange links, two queue links, and a shovel each way."""
    everything = federated(there, **{"reconnect-delay": 1})
    everything["upstreams"]["origin"]["uri"] = there_uri
    queues = {"pattern": "^work", "apply-to": "queues", "definition": {"federation-upstream-set": "all"}}
    everything["policies"]["queues"] = queues
    quickly = {"reconnect_delay": 1}
    fetch = shovel(there, here, src_queue="fetch", dest_queue="fetched", **quickly) | {"src-uri": there_uri}
    bring = shovel(here, there, src_queue="bring", dest_queue="brought", **quickly) | {"dest-uri": there_uri}
    return everything | {"shovels": {"fetch": fetch, "bring": bring}}


def declare_all(here: Site, there: Site) -> None:
    here.exchange().queue("k", "l").exchange(TRANSIENT).queue("k", name="of transient", exchange=TRANSIENT)
    there.exchange().exchange(TRANSIENT, durable=False)
    declare(here, there, name=CLASSIC)
    declare(here, there, name=QUORUM, arguments={"x-queue-type": "quorum"})


def all_links(here: Site) -> list[Named]:
    exchanges = [(here.vhost, name, "origin") for name in (X, TRANSIENT)]
    return [*exchanges, queue(here, CLASSIC), queue(here, QUORUM), named(here, "fetch"), named(here, "bring")]


def publish_all(here: Site, there: Site, bodies: list[str]) -> None:
    for exchange in (X, TRANSIENT):
        assert there.publish(bodies, exchange=exchange) == len(bodies)
    for name in (CLASSIC, QUORUM, "fetch"):
        there.publish(bodies, name, exchange="")
    here.publish(bodies, "bring", exchange="")


def take_all(here: Site, there: Site, bodies: list[str]) -> None:
    assert here.take(len(bodies)) == bodies
    assert here.take(len(bodies), queue="of transient") == bodies
    assert here.take(len(bodies), queue="fetched") == bodies
    assert there.take(len(bodies), queue="brought") == bodies


@pytest.mark.parametrize("release", [None, pytest.param("sid", marks=pytest.mark.versions)])
def test_the_upstream_restarts_and_then_the_downstream(
    agent_of: AgentOf, borrowed: Borrowed, site_on: SiteOn, *, proxy_to: ProxyTo, release: str | None
) -> None:
    """Also under load. A durable exchange keeps what links built; one that isn't goes, and may exist again too soon.
    What is published while the downstream is away comes afterwards; consumers that came before the agent are found
    again."""
    here, there = site_on(borrowed(release=release)), site_on(borrowed(release=release))
    proxy = proxy_to(there.node)
    declare_all(here, there)
    uri = there.node.uri(there.vhost, port=proxy.port)
    agent = agent_of(here.node).write({here.vhost: sections(here, there, uri)}).start()
    agent.wait_for("running", *all_links(here))
    before = of_durable(there)
    publish_all(here, there, first := numbered(10))
    take_all(here, there, first)
    there.publish(loaded := numbered(490, start=10), CLASSIC, exchange="")
    there.publish(loaded, QUORUM, exchange="")
    with User(here, CLASSIC, prefetch=20) as classic, User(here, QUORUM, prefetch=20) as quorum:
        for user in (classic, quorum):
            user.wait(150)
        proxy.refuse()
        there.node.restart()
        there.exchange(TRANSIENT, durable=False)
        proxy.accept()
        agent.wait_for("running", *all_links(here))
        for exchange, keys in ((X, ("k", "l")), (TRANSIENT, ("k",))):
            there.wait_bound(*keys, exchange=exchange)
        for user in (classic, quorum):
            eventually(lambda user=user: set(user.taken) == set(first + loaded), what="all have come")  # type: ignore[misc]
        publish_all(here, there, late := numbered(10, start=500))
        take_all(here, there, late)
        for user in (classic, quorum):
            eventually(lambda user=user: set(late) <= set(user.taken), what="the late ones have come")  # type: ignore[misc]
    assert of_durable(there) == before, "it was built anew"

    here.node.stop()
    agent.wait_for("backoff", (here.vhost, X, "origin"))
    publish_upstream(there, meanwhile := numbered(10, start=600))
    here.node.start()
    with User(here, CLASSIC) as classic, User(here, QUORUM) as quorum:
        for user in (classic, quorum):
            assert user.wait(10) == meanwhile
    agent.wait_for("running", *all_links(here))
    assert here.take(10) == meanwhile
    assert here.take(10, queue="fetched") == meanwhile
    publish_all(here, there, last := numbered(10, start=700))
    take_all(here, there, last)
    for name in (CLASSIC, QUORUM):
        wait_error(agent, NO_CONSUMERS, name)
    assert agent.logged("unexpected error") == []


def of_durable(there: Site) -> list[str]:
    """What the link of the durable exchange keeps upstream."""
    return [name for name in there.links_objects() if TRANSIENT not in name]


def publish_upstream(there: Site, bodies: list[str]) -> None:
    """Where a message waits for the downstream; of the transient exchange all the same."""
    there.publish(bodies)
    for name in (CLASSIC, QUORUM, "fetch"):
        there.publish(bodies, name, exchange="")
