"""What AMQP URIs and HTTP URLs are made of. Errors never quote the text: any part may be a piece of a password."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from agent.core.secret import Secret
from agent.core.suggest import did_you_mean
from agent.errors import UriError

ENCODE = "percent-encode special characters in user, password and path (@ as %40, : as %3A, / as %2F, # as %23)"
MAX_HOST = 253
MAX_LABEL = 63
MAX_VHOST = 255
_SHAPE = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?"
)
_ENTITY = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=%-]*\Z")
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]+(?:%25[A-Za-z0-9._~-]+)?\]\Z")


@dataclass(frozen=True, slots=True)
class Tls:
    """How to speak TLS; the peer is verified unless somebody said not to."""

    cacertfile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    verify: bool = True
    password: Secret | None = None
    depth: int | None = None
    server_name_indication: str | None = None
    fail_if_no_peer_cert: bool | None = None


@dataclass(frozen=True, slots=True)
class UrlParts:
    scheme: str
    user: str | None
    password: Secret | None
    host: str
    port: int | None
    path: str | None
    query: tuple[tuple[str, str], ...]


def split(text: str, schemes: tuple[str, ...]) -> UrlParts:
    """Takes a URL apart; user info and query are percent-decoded, host and path stay as written."""
    if not text.isascii() or any(ch <= " " or ch == "\x7f" for ch in text):
        raise UriError(f"the URI holds a blank, a control character or a letter beyond ASCII; {ENCODE}")
    if _ENTITY.search(text):
        raise UriError("a '%' in the URI isn't followed by two hexadecimal digits; write a literal one as %25")
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise UriError(_why_shapeless(text, schemes))
    if found["scheme"].lower() not in schemes:
        raise UriError(f"the scheme must be {' or '.join(schemes)}")
    user, password, host, port = _split_authority(found["authority"])
    return UrlParts(found["scheme"].lower(), user, password, host, port, found["path"], _split_query(found["query"]))


def _why_shapeless(text: str, schemes: tuple[str, ...]) -> str:
    if "://" not in text:
        return f"the URI has no scheme; write {' or '.join(f'{scheme}://HOST' for scheme in schemes)}"
    if "#" in text:
        return f"a '#' ends the URI early; {ENCODE}"
    return "the URI can't be understood; write SCHEME://USER:PASSWORD@HOST:PORT/PATH"


def _split_authority(authority: str) -> tuple[str | None, Secret | None, str, int | None]:
    userinfo, at, hostport = authority.rpartition("@")
    if "@" in userinfo:
        raise UriError(f"there is more than one '@' before the host; {ENCODE}")
    user, colon, password = userinfo.partition(":")
    host, port = _split_host(hostport)
    return (
        decode(user) if at else None,
        Secret(decode(password)) if colon else None,
        host,
        port,
    )


def _split_host(hostport: str) -> tuple[str, int | None]:
    if hostport.startswith("["):
        host, bracket, rest = hostport.partition("]")
        host, port_text = host + bracket, rest.removeprefix(":")
        valid = _IPV6.match(host) is not None and (not rest or rest.startswith(":"))
    else:
        host, _, port_text = hostport.partition(":")
        valid = _HOST.match(host) is not None
        valid = valid and _resolvable(decode(host))
    if not valid:
        raise UriError(f"the host can't be understood; {ENCODE}; an IPv6 address stands in brackets")
    if not port_text:
        return host, None
    if not port_text.isdigit() or not 0 < int(port_text[:6]) <= 65535:
        raise UriError(f"the port is not a number from 1 to 65535; {ENCODE}")
    if not host:
        raise UriError("a port needs a host before it")
    return host, int(port_text)


def _resolvable(host: str) -> bool:
    """Whether a resolver would take the name: labels of 1 to 63 bytes, 253 in all, a dot at the end at most."""
    if not host:
        return True
    labels = host.removesuffix(".").split(".")
    return len(host) <= MAX_HOST and all(0 < len(label.encode()) <= MAX_LABEL for label in labels)


def _split_query(query: str | None) -> tuple[tuple[str, str], ...]:
    pairs = (part.partition("=") for part in (query or "").split("&") if part)
    return tuple((decode(key), decode(value)) for key, _, value in pairs)


def decode(text: str) -> str:
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UriError("a percent-encoded part of the URI is not UTF-8") from error


def encode(text: str) -> str:
    return quote(text, safe="")


def number(value: str, key: str, *, low: int = 0, high: int = 2**31 - 1) -> int:
    if not value.isdecimal() or not low <= int(value[:11]) <= high:
        raise UriError(f"{key} must be a whole number from {low} to {high}")
    return int(value)


def warn_unknown(keys: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Unknown parameters are ignored as RabbitMQ ignores them, but not in silence.

    The name is told only when it nearly is a known one: it may be the rest of a password cut at an '&'.
    """
    known = sorted(known)
    return tuple(
        "a query parameter of the URI isn't known and is ignored" + did_you_mean(key, known)
        for key in keys
        if key not in known
    )


TLS_KEYS = frozenset(
    {
        "cacertfile",
        "certfile",
        "keyfile",
        "verify",
        "fail_if_no_peer_cert",
        "password",
        "depth",
        "server_name_indication",
        "customize_hostname_check",
    }
)


def read_tls(query: dict[str, str]) -> Tls:
    verify = query.get("verify", "verify_peer")
    if verify not in {"verify_peer", "verify_none"}:
        raise UriError("verify must be verify_peer or verify_none")
    peer_cert = query.get("fail_if_no_peer_cert")
    if peer_cert not in {None, "true", "false"}:
        raise UriError("fail_if_no_peer_cert must be true or false")
    if query.get("keyfile") and not query.get("certfile"):
        raise UriError("keyfile is given without certfile")
    return Tls(
        cacertfile=query.get("cacertfile"),
        certfile=query.get("certfile"),
        keyfile=query.get("keyfile"),
        verify=verify == "verify_peer",
        password=Secret(query["password"]) if "password" in query else None,
        depth=number(query["depth"], "depth", high=255) if "depth" in query else None,
        server_name_indication=query.get("server_name_indication"),
        fail_if_no_peer_cert=None if peer_cert is None else peer_cert == "true",
    )


def write_tls(tls: Tls) -> list[tuple[str, str]]:
    pairs = [
        ("cacertfile", tls.cacertfile),
        ("certfile", tls.certfile),
        ("keyfile", tls.keyfile),
        ("verify", None if tls.verify else "verify_none"),
        ("fail_if_no_peer_cert", None if tls.fail_if_no_peer_cert is None else str(tls.fail_if_no_peer_cert).lower()),
        ("password", tls.password.reveal() if tls.password else None),
        ("depth", None if tls.depth is None else str(tls.depth)),
        ("server_name_indication", tls.server_name_indication),
    ]
    return [(key, value) for key, value in pairs if value is not None]
