"""Dead letters go back to where their first death found them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from agent.runtime.moves import MOST_SESSIONS
from tests.integration.federation.conftest import SiteOn
from tests.integration.federation.sites import Site
from tests.integration.moves.scene import NEW, Moves, fill, publish, queue, reject, waits
from tests.lab.node import Node
from tests.lab.user_program import messages, numbered

BROKERS: Final = [pytest.param(None, id="own"), pytest.param("sid", id="sid", marks=pytest.mark.versions)]
DEAD: Final = "dead-letters"
TO_DEAD: Final[dict[str, object]] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
DEATHS: Final = {"x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"}


PAIRS: Final = [
    pytest.param(None, "quorum", id="own-quorum"),
    pytest.param("sid", "classic", id="sid-classic", marks=pytest.mark.versions),
]


@pytest.fixture(params=BROKERS)
def at(broker_on: Callable[..., Node], site_on: SiteOn, request: pytest.FixtureRequest) -> Site:
    return site_on(broker_on(request.param))


@pytest.mark.parametrize(("at", "kind"), PAIRS, indirect=["at"])
def test_each_goes_to_its_exchange_and_key_or_its_queue(at: Site, kind: str, moves: Moves) -> None:
    """Some were published to an exchange and expired, some to a queue and were rejected."""
    queue(at, DEAD, kind=kind)
    queue(at, "slow", kind=kind, arguments=TO_DEAD | {"x-message-ttl": 100})
    queue(at, "work", kind=kind, arguments=TO_DEAD)
    at.exchange("orders").bind("eu.#", name="slow", exchange="orders")
    publish(at, "eu.1", [("expires", {"n": 1})], exchange="orders")
    fill(at, 2, "work")
    reject(at, "work", 2)
    waits(at, 3, DEAD)
    at.unbind("eu.#", name="slow", exchange="orders")
    queue(at, NEW)
    at.bind("eu.1", name=NEW, exchange="orders")

    account = moves.run(at.uri, "--redrive", "--dry-run", queue=DEAD)
    assert {(each["exchange"], each["routing_key"], each["messages"]) for each in account["destinations"]} == {
        ("orders", "eu.1", 1),
        ("", "work", 2),
    }
    account = moves.run(at.uri, "--redrive", "--reason", "expired", queue=DEAD)
    assert (account["moved"], account["left"]) == (1, {"not_chosen": 2})
    assert moves.run(at.uri, "--redrive", "--died-in", "slow", queue=DEAD, status=5)["left"] == {"not_chosen": 2}
    assert moves.run(at.uri, "--redrive", "--strip-deaths", queue=DEAD)["moved"] == 2
    [expired] = messages(at.uri, NEW, 1)
    assert (expired.body, expired.headers["n"]) == (b"expires", 1)
    assert set(expired.headers) >= DEATHS
    rejected = messages(at.uri, "work", 2)
    assert [each.body.decode() for each in rejected] == numbered(2)
    assert not DEATHS & set(rejected[0].headers)


def test_the_first_death_counts_also_after_a_cycle(at: Site, moves: Moves) -> None:
    """`work` is left first, then `retry`, and `work` once more: its entry is the newest one again."""
    queue(at, DEAD)
    queue(
        at, "retry", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work", "x-message-ttl": 50}
    )
    queue(at, "work", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "retry"})
    fill(at, 1, "work")
    reject(at, "work", 1)
    reject(at, "work", 1)
    waits(at, 1, "work")
    account = moves.run(at.uri, "--redrive", "--dry-run", queue="work")
    assert account["destinations"] == [{"exchange": "", "routing_key": "work", "messages": 1}]


def test_what_has_nowhere_to_go_stays(at: Site, moves: Moves) -> None:
    """In their order, among others that are moved."""
    queue(at, DEAD)
    queue(at, "work", arguments=TO_DEAD)
    at.exchange("gone").bind("k", name="work", exchange="gone")
    at.exchange("stays").bind("k", name="work", exchange="stays")
    for number in range(30):
        publish(at, "k", [(str(number), {})], exchange="gone" if number % 3 else "stays")
    reject(at, "work", 30)
    publish(at, DEAD, [("never died", {})])
    at.delete_exchange("gone")
    account = moves.run(at.uri, "--redrive", queue=DEAD, status=4)
    assert (account["moved"], account["left"]) == (10, {"no_exchange": 20, "never_dead_lettered": 1})
    assert at.take(10, queue="work") == [str(number) for number in range(0, 30, 3)], "each once"
    assert at.take(21, queue=DEAD) == [*(str(number) for number in range(30) if number % 3), "never died"]


def test_exchanges_that_may_not_be_written_to_keep_no_others_back(
    at: Site, moves: Moves, name: Callable[[str], str]
) -> None:
    """The destination closes the channel over each; they are more than a move bears where none gets through."""
    closed = [f"closed {number}" for number in range(MOST_SESSIONS + 1)]
    queue(at, DEAD)
    queue(at, "work", arguments=TO_DEAD)
    for exchange in (*closed, "open"):
        at.exchange(exchange).bind("k", name="work", exchange=exchange)
    for exchange in closed:
        for to in ("open", exchange):
            publish(at, "k", [(to, {})], exchange=to)
    reject(at, "work", 2 * len(closed))
    user, admin = name("mover"), at.node.admin
    admin.user(user, "secret")
    try:
        admin.permissions(at.vhost, user, configure=".*", read=".*", write="^open$")
        uri = at.uri.replace("guest:guest", f"{user}:secret")
        account = moves.run(uri, "--redrive", queue=DEAD, status=4)
    finally:
        admin.delete("users", user)
    found = (account["moved"], account["left"], account["error"])
    assert found == (len(closed), {"exchange_not_allowed": len(closed)}, None)
    assert at.take(len(closed), queue=DEAD) == closed
