"""Accounts, HTTP APIs and addresses of brokers that a check knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.check.context import BrokerApis, BrokerFacts, CheckContext, Endpoint, LinkEnds, ends_of, judge_given_apis
from agent.check.http_api import BrokerApi
from agent.check.permissions import accounts_of, judge_permissions
from agent.check.trial import inability
from agent.core.addresses.uri import AmqpUri, parse, parse_http
from agent.core.links.plan import Outlook, PlannedLink
from agent.core.model import AddressSource
from agent.core.permissions import Grant
from tests.unit.core.some_links import exchange_link, shovel_link

HERE: tuple[AmqpUri, ...] = (parse("amqp://own@here"),)


def upstream(name: str, uri: str = "amqp://fed@h/%2f", vhost: str = "/") -> Endpoint:
    return Endpoint(f"upstream {name}", vhost, (parse(uri),), name)


def test_two_upstreams_with_one_user_get_the_same_command() -> None:
    here = Endpoint("downstream", "/", HERE)
    links = tuple(
        LinkEnds(PlannedLink(exchange_link(exchange), Outlook.RUN, "", ""), upstream(exchange), here)
        for exchange in ("orders", "billing")
    )
    accounts = accounts_of(CheckContext(links, {}, "c", BrokerApis(HERE)), {})
    first, second = (each.command(Grant("^$", "^$", "^mine")) for each in accounts if each.user == "fed")
    assert first == second
    assert "orders" in first
    assert "billing" in first
    assert "(^mine)|" in first


async def test_where_permissions_are_not_known_the_broker_is_named_once() -> None:
    here, link = Endpoint("downstream", "/", HERE), exchange_link("x")
    async with BrokerApi([parse_http("http://127.0.0.1:1")], where="downstream", setting="m") as api:
        context = CheckContext(
            (LinkEnds(PlannedLink(link, Outlook.RUN, "", ""), here, here),), {}, "c", BrokerApis(HERE, api)
        )
        found = [each async for each in judge_permissions(accounts_of(context, {})[:1], context, ())]
    [message] = [each.message for each in found]
    assert "can't be judged: by downstream http://127.0.0.1:1: connection refused" in message


async def test_nothing_is_said_of_permissions_where_none_are_known() -> None:
    """RabbitMQ's say nothing of another broker."""
    link = shovel_link(AddressSource("orders"))
    ends = ends_of(PlannedLink(link, Outlook.RUN, "", ""), HERE)
    facts = BrokerFacts(ends.source.where, "/", "u", "6.1", None, frame_max=0, channel_max=0, product="ActiveMQ")
    context = CheckContext((ends,), {ends.source: (facts,)}, "c", BrokerApis(HERE))
    found = [each async for each in judge_permissions(accounts_of(context, {}), context, ())]
    assert {each.where for each in found} == {"downstream here:5672"}
    known = replace(facts, product="RabbitMQ")
    context = replace(context, brokers={ends.source: (known,)})
    found = [each async for each in judge_permissions(accounts_of(context, {}), context, ())]
    assert {each.where for each in found} == {"downstream here:5672", "shovel source h:5672"}
    assert any("read '^orders$'" in each.fix for each in found)


def test_an_api_that_fits_no_upstream_or_several_is_a_warning() -> None:
    endpoints = [upstream("a"), upstream("b"), upstream("b", "amqp://other", "v")]
    found = {each.where: each.message for each in judge_given_apis(["a", "h:5672", "v/b", "typo", "b"], endpoints)}
    assert set(found) == {"--api typo", "--api b"}
    assert "no upstream has this name" in found["--api typo"]
    assert "different addresses" in found["--api b"]


@pytest.mark.parametrize(
    ("uri", "able"),
    [
        ("amqp://h", True),
        ("amqps://h", True),
        ("amqps://h?auth_mechanism=external", False),
        ("amqps://h?server_name_indication=other", False),
        ("amqps://h?server_name_indication=h", True),
    ],
)
def test_brokers_that_the_trials_client_can_log_in_to(uri: str, able: bool) -> None:
    assert (inability(parse(uri)) is None) is able
