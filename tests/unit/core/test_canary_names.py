"""Names of canary exchanges: no broker's error text about one may exceed 255 bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.core.rules import names

TEXTS = (
    "PRECONDITION_FAILED - exchange '{name}' in vhost '{vhost}' in use",
    "NOT_FOUND - no exchange '{name}' in vhost '{vhost}'",
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255)


def test_a_name_tells_what_it_is_for() -> None:
    found = names.canary("orders", "federation: orders -> west", "/")
    assert found == "federation-agent: notices when orders is deleted (federation: orders -> west)"


def test_long_names_give_way_to_a_digest_of_the_queue() -> None:
    one, other = (names.canary("x" * 120, "federation: " + "x" * 120 + f" -> {cluster}", "/") for cluster in "ab")
    assert one is not None
    assert other is not None
    assert one != other
    assert one.startswith("federation-agent: notices a deletion (")


def test_there_is_none_in_a_vhost_with_a_very_long_name() -> None:
    assert names.canary("x", "federation: x -> c", "v" * 200) is None


@given(exchange=NAMES, queue=NAMES, vhost=NAMES)
def test_every_error_text_fits(exchange: str, queue: str, vhost: str) -> None:
    name = names.canary(exchange, queue, vhost)
    if name is not None:
        assert all(len(text.format(name=name, vhost=vhost).encode()) <= 255 for text in TEXTS)


@given(exchange=NAMES, vhost=NAMES)
def test_what_can_be_asked_for_fits_or_can_be_cut(exchange: str, vhost: str) -> None:
    text = TEXTS[1].format(name=exchange, vhost=vhost)
    assert names.can_be_asked_for(exchange, vhost) == (text.isascii() or len(text.encode()) <= 255)


def test_brokers_cut_only_ascii() -> None:
    assert names.can_be_asked_for("x" * 255, "/")
    assert not names.can_be_asked_for("x" * 200 + "ü" * 15, "/")
    assert names.can_be_declared("x" * 255, "/")
    assert names.can_be_declared("ü" * 40, "/")
    assert not names.can_be_declared("ü" * 50, "/")
