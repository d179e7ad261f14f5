"""URIs and URLs: every parameter, what is refused, and what is never shown."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.addresses import uri
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import AmqpUri, Mechanism, parse_http
from agent.core.addresses.url_text import Tls, encode
from agent.errors import UriError

SENTINEL = "s3ntinel"
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
shorts = st.none() | st.integers(0, 2**16 - 1)
names = st.sampled_from(["h", "broker-1.example.com", "under_score.h", "h.", "127.0.0.1", "::1", "disable"])
hosts = st.sampled_from(["h", "broker-1.example.com", "127.0.0.1", "[::1]", "[fe80::1%25eth0]", "a%20b"])
paths = st.none() | words.map(lambda vhost: "/" + encode(vhost))
tls_options = st.builds(
    Tls,
    cacertfile=st.none() | words.filter(bool),
    verify=st.booleans(),
    password=st.none() | words.map(Secret),
    depth=st.none() | st.integers(0, 255),
    server_name_indication=st.none() | names,
    fail_if_no_peer_cert=st.none() | st.booleans(),
)


@st.composite
def uris(draw: st.DrawFn) -> AmqpUri:
    scheme = draw(st.sampled_from(["amqp", "amqps"]))
    host = draw(hosts)
    user = draw(st.none() | words)
    frame_max = draw(st.none() | st.just(0) | st.integers(4096, 2**31 - 1))
    return AmqpUri(
        scheme=scheme,
        host=host,
        port=draw(st.none() | st.integers(1, 65535)),
        user=user,
        password=None if user is None else draw(st.none() | words.map(Secret)),
        path=draw(paths),
        heartbeat=draw(shorts),
        connection_timeout=draw(st.none() | st.integers(0, 2**31 - 1)),
        channel_max=draw(shorts),
        frame_max=frame_max,
        mechanisms=tuple(draw(st.lists(st.sampled_from(Mechanism), max_size=3))),
        tls=draw(tls_options) if scheme == "amqps" else None,
    )


def written(made: AmqpUri) -> str:
    """The complete URI, with its secrets."""
    login = "" if made.user is None else encode(made.user)
    login += "" if made.password is None else f":{encode(made.password.reveal())}"
    tuning = ((key, getattr(made, key)) for key in ("heartbeat", "connection_timeout", "channel_max", "frame_max"))
    tls = made.tls or Tls()
    options = [
        *tuning,
        *(("auth_mechanism", mechanism) for mechanism in made.mechanisms),
        *((key, getattr(tls, key)) for key in ("cacertfile", "certfile", "keyfile", "depth", "server_name_indication")),
        ("verify", None if tls.verify else "verify_none"),
        ("fail_if_no_peer_cert", None if tls.fail_if_no_peer_cert is None else str(tls.fail_if_no_peer_cert).lower()),
        ("password", tls.password.reveal() if tls.password else None),
    ]
    query = "&".join(f"{key}={encode(str(value))}" for key, value in options if value is not None)
    at, port = "" if made.user is None else "@", "" if made.port is None else f":{made.port}"
    return f"{made.scheme}://{login}{at}{made.host}{port}{made.path or ''}{'?' if query else ''}{query}"


@given(uris())
def test_what_is_written_parses_to_the_same(original: AmqpUri) -> None:
    assert uri.parse(written(original)) == original


@given(uris())
def test_the_shown_form_holds_no_credentials(original: AmqpUri) -> None:
    secret = AmqpUri(
        scheme=original.scheme, host=original.host, port=original.port, path=original.path,
        user=SENTINEL, password=Secret(SENTINEL), tls=Tls(password=Secret(SENTINEL)),
    )  # fmt: skip
    assert SENTINEL in written(secret)
    assert SENTINEL not in secret.safe + str(secret)
    assert SENTINEL not in repr(Secret(SENTINEL)) + str(Secret(SENTINEL))
    assert uri.parse(secret.safe).vhost("/") == secret.vhost("/")


@given(st.text(max_size=40) | st.text("amqps:/@[]%?#&=0123456789ab ", max_size=40).map(lambda text: "amqp://" + text))
def test_any_text_is_a_uri_or_an_error(text: str) -> None:
    try:
        parsed = uri.parse(text)
    except UriError:
        return
    assert uri.parse(written(parsed)) == parsed


@pytest.mark.parametrize(
    "text",
    [
        f"amqp://u:{SENTINEL}/x@h",
        f"amqp://u:123/{SENTINEL}@h",
        f"amqp://u:123?{SENTINEL}@h",
        f"amqp://u:123/x?{SENTINEL}@h",
        f"amqp://u:p@h/{SENTINEL}@",
        f"amqp://u:{SENTINEL}#@h",
        f"amqp://u:{SENTINEL}@{SENTINEL}@h",
        f"amqp://u:{SENTINEL}:{SENTINEL}/@h:5672",
        f"amqp://u:{SENTINEL}%zz@h",
        f"amqp://u:{SENTINEL} @h",
        f"amqp://h:{SENTINEL}",
        f"amqp://u:x@h/a/b?password={SENTINEL}",
        f"amqp://h?heartbeat={SENTINEL}",
        f"amqp://h?auth_mechanism={SENTINEL}",
        f"amqps://h?verify={SENTINEL}",
        f"amqps://h?depth={SENTINEL}",
        f"amqps://h?fail_if_no_peer_cert={SENTINEL}",
        f"amqps://h?keyfile={SENTINEL}",
        f"{SENTINEL}://h",
        f"amqp://h?frame_max=5&password={SENTINEL}",
        "amqp://h:0",
        "amqp://h:65536",
        "amqp://:5672",
        "amqp://[::1",
        "amqp://u:ä@h",
        "amqp://u:%ff@h",
        f"amqp://{SENTINEL}..b",
        f"amqp://.{SENTINEL}",
        "amqp://" + "a" * 64,
        "amqp://" + "a." * 127 + "b",
        "amqp://h/%ff",
        "amqp://%ff",
        "amqp://h/" + "v" * 256,
        "amqp://h/%00",
        "amqp://h%00",
        "amqp://[.]",
        "amqp://%C3%BC%E2%80%8B",
        "amqp://h:00000165536",
        f"amqp://u:{SENTINEL}%00@h",
        f"amqp://u%00:{SENTINEL}@h",
        "amqp://h?heartbeat=65536",
        "amqp://h?heartbeat=00000000000000100000",
        "amqp://h?heartbeat=" + "9" * 5000,
        "amqp://h?channel_max=65536",
        "amqp://h?frame_max=4294967296",
        "amqp://h?connection_timeout=-1",
        "amqps://h?cacertfile=",
        f"amqps://h?cacertfile={SENTINEL}%00",
        "amqps://h?certfile=",
        "amqps://h?certfile=c&keyfile=%00",
        "amqps://h?server_name_indication=",
        "amqps://h?server_name_indication=%20",
        "amqps://h?server_name_indication=h%00",
        "amqps://h?server_name_indication=.h",
        "amqps://h?server_name_indication=%C3%BC",
        "amqps://h?server_name_indication=" + "a" * 64,
        "h:5672",
        "",
    ],
)
def test_errors_never_quote_the_uri(text: str) -> None:
    with pytest.raises(UriError) as caught:
        uri.parse(text)
    assert SENTINEL not in str(caught.value) + repr(caught.value)


def test_warnings_suggest_but_do_not_quote() -> None:
    parsed = uri.parse(f"amqp://h/?hartbeat=5&{SENTINEL}=1&cacertfile=x&frame_max=4096")
    text = "\n".join(parsed.warnings)
    assert "did you mean 'heartbeat'?" in text
    assert "/%2f" in text
    assert "amqps://" in text
    assert "8192" in text
    assert SENTINEL not in text
    assert any("verify_none" in warning for warning in uri.parse("amqps://h?verify=verify_none").warnings)


@given(uris())
def test_what_parses_is_what_sockets_and_the_wire_take(made: AmqpUri) -> None:
    parsed = uri.parse(written(made))
    parsed.connect_host.encode("idna")
    assert "\0" not in parsed.connect_host + parsed.vhost("/") + parsed.login[0] + parsed.login[1].reveal()
    struct.pack(">HHI", parsed.heartbeat or 0, parsed.channel_max or 0, parsed.frame_max or 0)


def test_an_at_sign_where_no_password_can_be_cut() -> None:
    parsed = uri.parse("amqps://u:p@h/v?cacertfile=/etc/x@y.pem")
    assert parsed.tls is not None
    assert parsed.tls.cacertfile == "/etc/x@y.pem"
    with pytest.raises(UriError, match="'@' after the host; percent-encode"):
        parse_http(f"http://u:1/{SENTINEL}@h")


def test_what_a_uri_says_and_what_it_leaves_open() -> None:
    bare = uri.parse("amqp://")
    assert bare.is_downstream_itself
    assert bare.vhost("tenant") == "tenant"
    assert bare.login == ("guest", Secret("guest"))
    full = uri.parse("AMQPS://us%40er:p%3Aw@[::1]/%2F?heartbeat=0&auth_mechanism=EXTERNAL")
    assert (full.connect_host, full.connect_port, full.vhost("x")) == ("::1", 5671, "/")
    assert full.login == ("us@er", Secret("p:w"))
    assert (full.heartbeat, full.mechanisms) == (0, (Mechanism.EXTERNAL,))
    assert full.tls is not None
    assert full.tls.verify
    assert uri.parse("amqp://h/").vhost("x") == ""


def test_the_old_separate_properties_make_the_same_uri() -> None:
    made = uri.from_parts(
        host="h", protocol="amqps", port=5671, virtual_host="/", username="u", password=Secret("p"), heartbeat=1
    )
    assert made == uri.parse("amqps://u:p@h:5671/%2F?heartbeat=1")
    assert uri.from_parts(host="::1").safe == "amqp://[::1]"
    assert written(uri.from_parts(host="h", password=Secret("p"))) == "amqp://guest:p@h"


def test_the_address_of_an_http_api() -> None:
    url = parse_http(f"https://u:{SENTINEL}@h/rabbit/?cacertfile=/ca&verfy=x")
    assert (url.safe, url.user, url.password.reveal()) == ("https://h:15671/rabbit", "u", SENTINEL)
    assert url.tls is not None
    assert url.tls.cacertfile == "/ca"
    assert "did you mean 'verify'?" in url.warnings[0]
    assert SENTINEL not in repr(url) + str(url)
    assert parse_http("http://h").port == 15672
    assert parse_http("https://h").warnings == ()
    assert "identity is not checked" in parse_http("https://h?verify=verify_none").warnings[0]
    assert "write https://" in parse_http("http://h?verify=verify_none").warnings[0]
    for wrong in ("amqp://h", "http://", "http://h:x", "http://a..b", "https://h?server_name_indication="):
        with pytest.raises(UriError):
            parse_http(wrong)
    with pytest.raises(UriError, match="write http://HOST or https://HOST"):
        parse_http("h:15672")


def test_what_an_address_says_of_tls_itself_holds_even_if_it_is_the_default() -> None:
    lax = Tls(verify=False)
    assert parse_http("https://h?verify=verify_peer").completed(("u", Secret("p")), lax).tls == Tls()
    assert parse_http("https://h").completed(("u", Secret("p")), lax).tls == lax
    assert parse_http("http://h").completed(("u", Secret("p")), lax).tls is None
