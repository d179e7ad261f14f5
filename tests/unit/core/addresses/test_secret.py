"""Our secret doesn't come back in the words of who was given it, and ordinary words stay."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.addresses.secret import REDACTED, SHORTEST, Secret, redacted

SECRET = Secret("S3cr/et+päss word")
VALUE = SECRET.reveal()
FORMS = {
    "as it is": VALUE,
    "in upper case": "S3CR/ET+PÄSS WORD",
    "in a URI": quote(VALUE, safe=""),
    "in a URI, lower case": "S3cr%2fet%2bp%c3%a4ss%20word",
    "in a query": quote_plus(VALUE),
    "in JSON": json.dumps(VALUE)[1:-1],
    "its beginning": VALUE[:12],
    "its end": VALUE[5:],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_it_is_taken_out(form: str) -> None:
    assert redacted(f"login of u:{form}@h failed", SECRET) == f"login of u:{REDACTED}@h failed"


@given(st.binary(max_size=8), st.binary(max_size=8), st.text(st.characters(codec="ascii"), min_size=10, max_size=40))
def test_it_is_taken_out_of_base64_wherever_it_stands_there(before: bytes, after: bytes, value: str) -> None:
    encoded = base64.b64encode(before + value.encode() + after).decode()
    shown = redacted(f"Basic {encoded}", Secret(value))
    kept = shown.removeprefix("Basic ").partition(REDACTED)
    assert REDACTED in shown
    assert len(kept[0]) <= 4 * len(before) / 3 + 2
    assert len(kept[2]) <= 4 * len(after) / 3 + 5


@given(st.text(max_size=40), st.text(max_size=40), st.text(min_size=SHORTEST, max_size=30))
def test_nothing_of_it_is_left_whatever_is_around(before: str, after: str, value: str) -> None:
    assert value not in redacted(before + value + after, Secret(value)).replace(REDACTED, "\0")


@pytest.mark.parametrize(
    ("value", "user"), [("guest", "guest"), ("", "u"), ("a", "u"), ("no", "u"), ("not", "u"), ("orders-2024", "u")]
)
def test_ordinary_words_stay(value: str, user: str) -> None:
    text = "NOT_FOUND - no queue 'orders' in vhost '/' for user 'guest'"
    assert redacted(text, Secret(value), user=user) == text


def test_the_user_is_named_though_the_password_is_like_it() -> None:
    text = "user 'federation-agent' gave federation-agent-7411"
    assert redacted(text, Secret("federation-agent-7411"), user="federation-agent") == (
        f"user 'federation-agent' gave federatio{REDACTED}"
    )


def test_a_token_that_is_longer_than_any_text() -> None:
    token = base64.b64encode(bytes(range(256)) * 8).decode()
    began = time.process_time()
    assert redacted(f"bad: {token[300:540]}", Secret(token)) == f"bad: {REDACTED}"
    assert time.process_time() - began < 1
