"""Addresses of HTTP APIs."""

from __future__ import annotations

from agent.core.addresses.http_url import parse
from agent.core.addresses.secret import Secret
from agent.core.addresses.url_text import Tls


def test_what_an_address_says_of_tls_itself_holds_even_if_it_is_the_default() -> None:
    lax = Tls(verify=False)
    assert parse("https://h?verify=verify_peer").completed(("u", Secret("p")), lax).tls == Tls()
    assert parse("https://h").completed(("u", Secret("p")), lax).tls == lax
    assert parse("http://h").completed(("u", Secret("p")), lax).tls is None
