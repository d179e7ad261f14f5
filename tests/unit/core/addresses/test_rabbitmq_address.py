"""Addresses of AMQP 1.0, in the two forms that RabbitMQ has had."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.addresses.rabbitmq_address import AddressedObject, addressed, in_other_form, node_at
from agent.core.addresses.url_text import encode

words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
OLD_QUEUE = AddressedObject("queue", "a/b", is_old=True)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("/queues/a%2Fb%20c", AddressedObject("queue", "a/b c")),
        ("/exchanges/x", AddressedObject("exchange", "x")),
        ("/exchanges/x/", AddressedObject("exchange", "x", "")),
        ("/exchanges/x/a.%23", AddressedObject("exchange", "x", "a.#")),
        ("/queues/", None),
        ("/queues/a/b", None),
        ("/queues/%ff", None),
        ("/exchanges//k", None),
        ("/amq/queue/a%2Fb", OLD_QUEUE),
        ("/queue/a%20b", AddressedObject("queue", "a%20b", is_old=True, is_declared=True)),
        ("a", AddressedObject("queue", "a", is_old=True, is_declared=True)),
        ("/exchange/x/k", AddressedObject("exchange", "x", "k", is_old=True)),
        ("/exchange/x", AddressedObject("exchange", "x", is_old=True)),
        ("/topic/a.b", AddressedObject("exchange", "amq.topic", "a.b", is_old=True)),
        ("topic://orders", None),
        ("", None),
        ("/queue", None),
    ],
)
def test_what_an_address_names(address: str, found: AddressedObject | None) -> None:
    assert addressed(address) == found


@pytest.mark.parametrize(
    ("address", "is_source", "other"),
    [
        ("/queue/a%2Fb c", True, "/queues/a%2Fb%20c"),
        ("/amq/queue/a", False, "/queues/a"),
        ("a", True, "/queues/a"),
        ("/exchange/x/k", False, "/exchanges/x/k"),
        ("/exchange/x", False, "/exchanges/x"),
        ("/topic/a.b", False, "/exchanges/amq.topic/a.b"),
        ("/exchange/x/k", True, None),  # of which there is none
        ("/queues/a", True, None),  # it has that form
        ("topic://orders", False, None),
    ],
)
def test_the_form_since_4_0(address: str, is_source: bool, other: str | None) -> None:
    assert in_other_form(address, is_source=is_source, since_4_0=True) == other


@pytest.mark.parametrize(
    ("address", "is_source", "other"),
    [
        ("/queues/a%2Fb%20c", True, "/amq/queue/a%2Fb c"),
        ("/exchanges/x/k", False, "/exchange/x/k"),
        ("/exchanges/x/k", True, None),
        ("/exchanges/x/", False, "/exchange/x"),
        ("/queue/a", True, None),
        ("a", False, None),
    ],
)
def test_the_form_before_4_0(address: str, is_source: bool, other: str | None) -> None:
    assert in_other_form(address, is_source=is_source, since_4_0=False) == other


@given(words, words)
def test_any_name_is_found_again(name: str, key: str) -> None:
    assert addressed(f"/queues/{encode(name)}") == AddressedObject("queue", name)
    assert addressed(f"/exchanges/{encode(name)}/{encode(key)}") == AddressedObject("exchange", name, key)


@given(words.filter(lambda name: "%2F" not in name))
def test_both_forms_name_the_same(name: str) -> None:
    before = in_other_form(f"/queues/{encode(name)}", is_source=True, since_4_0=False)
    assert before is not None
    assert node_at(before) == ("queue", name)
    assert in_other_form(before, is_source=True, since_4_0=True) == f"/queues/{encode(name)}"


def test_any_other_address_is_a_node_of_its_own() -> None:
    assert node_at("topic://orders") == ("address", "topic://orders")
    assert node_at("/exchanges/x/k") == ("exchange", "x")
