from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.core.addresses import uri
from agent.core.addresses.uri import parse
from agent.core.fields import text
from agent.core.links.lag import LagCritical
from agent.core.links.read_limits import RateLimit
from agent.core.links.reconcile import asks_the_same, has_other_passwords, leads_elsewhere, needs_restart, purpose_of
from agent.core.model import (
    ApplyTo,
    Choice,
    Exchange,
    Federation,
    Link,
    LinkSettings,
    Policy,
    Queue,
    QueueSource,
    Shovel,
    ShovelLink,
)
from agent.errors import Place
from tests.unit.core.some_links import exchange_link, queue_link, shovel_link

POLICY = Policy("p", "x", ApplyTo.ALL, 0, Federation(Choice.SET, "all"), Place("broker"))
EXCHANGE, QUEUE, SHOVEL = exchange_link(), queue_link(), shovel_link()


@pytest.mark.parametrize(
    ("running", "wanted"),
    [
        (EXCHANGE, replace(EXCHANGE, policy="other", exchange=replace(EXCHANGE.exchange, policy=POLICY))),
        (EXCHANGE, replace(EXCHANGE, management=(uri.parse_http("http://h"),))),
        (QUEUE, replace(QUEUE, management=(uri.parse_http("http://h"),))),
        (QUEUE, replace(QUEUE, policy="other", queue=replace(QUEUE.queue, policy=POLICY))),
        (SHOVEL, replace(SHOVEL, shovel=replace(SHOVEL.shovel, place=Place("agent.yaml", 7, 1)))),
    ],
)
def test_who_asks_for_a_link_and_where_is_no_reason(running: Link, wanted: Link) -> None:
    assert running != wanted
    assert not needs_restart(running, wanted)


@pytest.mark.parametrize(
    ("running", "wanted"),
    [
        (EXCHANGE, replace(EXCHANGE, exchange=Exchange("x", "fanout"))),
        (EXCHANGE, replace(EXCHANGE, settings=LinkSettings(max_hops=2))),
        (EXCHANGE, replace(EXCHANGE, problem="it holds too much")),
        (QUEUE, replace(QUEUE, queue=Queue("x", durable=False))),
        (SHOVEL, replace(SHOVEL, shovel=replace(SHOVEL.shovel, source=QueueSource("r")))),
        (SHOVEL, replace(SHOVEL, uris=())),
    ],
)
def test_what_a_link_does_or_declares_is_one(running: Link, wanted: Link) -> None:
    assert needs_restart(running, wanted)


@pytest.mark.parametrize(
    ("former", "now", "elsewhere"),
    [
        (["amqp://a", "amqp://b"], ["amqp://b", "amqp://c"], False),
        (["amqp://a"], ["amqp://b"], True),
        ([], ["amqp://a"], True),
    ],
)
def test_a_link_leads_elsewhere_when_it_has_none_of_its_addresses_any_more(
    former: list[str], now: list[str], elsewhere: bool
) -> None:
    assert leads_elsewhere(former, now) is elsewhere


def with_password(link: Link, password: str, user: str = "agent") -> Link:
    uris = (parse(f"amqp://{user}:{password}@there"),)
    if isinstance(link, ShovelLink):
        return replace(link, uris=uris, shovel=replace(link.shovel, source_uris=uris, destination_uris=uris))
    return replace(link, uris=uris)


@pytest.mark.parametrize("link", [EXCHANGE, QUEUE, SHOVEL])
def test_another_password_is_none_and_another_user_is_one(link: Link) -> None:
    running = with_password(link, "first")
    assert not needs_restart(running, with_password(link, "second"))
    assert has_other_passwords(running, with_password(link, "second"))
    assert not has_other_passwords(running, with_password(link, "first"))
    assert needs_restart(running, with_password(link, "first", user="other"))


def test_another_password_of_only_the_destination_is_one_that_links_log_in_with() -> None:
    running = with_password(SHOVEL, "first")
    assert isinstance(running, ShovelLink)
    elsewhere = replace(running.shovel, destination_uris=(parse("amqp://agent:second@there"),))
    assert has_other_passwords(running, replace(running, shovel=elsewhere))


def test_a_purpose_is_the_same_for_other_credentials_and_another_place() -> None:
    again = replace(
        SHOVEL,
        shovel=replace(
            SHOVEL.shovel,
            place=Place("agent.yaml", 7, 1),
            source_uris=tuple(replace(each, password=None) for each in SHOVEL.shovel.source_uris),
        ),
    )
    assert again != SHOVEL
    assert purpose_of(again) == purpose_of(SHOVEL)


@pytest.mark.parametrize(
    "shovel",
    [
        replace(SHOVEL.shovel, source=QueueSource("another")),
        replace(SHOVEL.shovel, settings=replace(SHOVEL.settings, delete_after=5)),
    ],
)
def test_another_purpose(shovel: Shovel) -> None:
    assert purpose_of(replace(SHOVEL, shovel=shovel)) != purpose_of(SHOVEL)


LIMIT, OTHER_LIMIT = RateLimit(messages=5), RateLimit(bytes=7)


def limited(link: Link, limit: RateLimit | None, **changed: Any) -> Link:
    if isinstance(link, ShovelLink):
        return replace(link, shovel=replace(link.shovel, settings=replace(link.settings, rate_limit=limit, **changed)))
    return replace(link, settings=replace(link.settings, rate_limit=limit, **changed))


@pytest.mark.parametrize("link", [EXCHANGE, QUEUE, SHOVEL])
def test_another_limit_is_no_reason_and_neither_is_none(link: Link) -> None:
    """But a link that had none shares the connection that it reads from."""
    assert not needs_restart(limited(link, LIMIT), limited(link, OTHER_LIMIT))
    assert not needs_restart(limited(link, LIMIT), link)
    assert needs_restart(link, limited(link, LIMIT))
    assert asks_the_same(limited(link, LIMIT), limited(link, OTHER_LIMIT))
    assert purpose_of(limited(link, LIMIT)) == purpose_of(link)
    assert needs_restart(limited(link, LIMIT), limited(link, LIMIT, remove_headers=("a",)))


def test_the_first_limit_does_not_run_a_finished_shovel_again() -> None:
    assert asks_the_same(SHOVEL, limited(SHOVEL, LIMIT))
    assert not asks_the_same(SHOVEL, limited(SHOVEL, LIMIT, set_headers=(("a", text("b")),)))


@pytest.mark.parametrize("user", ["agent", "other"])
def test_what_is_only_compared_with_runs_no_finished_shovel_again(user: str) -> None:
    """Not where the credentials change with it either, for which the link connects anew."""
    former, now = (with_password(SHOVEL, "first"), with_password(SHOVEL, "second", user))
    assert isinstance(now, ShovelLink)
    settings = replace(now.settings, lag_critical=LagCritical(seconds=5.0))
    now = replace(now, shovel=replace(now.shovel, settings=settings))
    assert purpose_of(former) == purpose_of(now)
    assert asks_the_same(former, now)
    counting = replace(now, shovel=replace(now.shovel, settings=replace(now.settings, delete_after=5)))
    assert not asks_the_same(former, counting)
