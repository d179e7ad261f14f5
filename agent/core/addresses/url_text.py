"""The common parts of AMQP URIs and HTTP URLs. Errors never quote the text: any part may be a piece of a password."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote_to_bytes

from agent.core.addresses.secret import Secret
from agent.core.text import did_you_mean
from agent.errors import UriError

ENCODE = "percent-encode special characters in user, password and path (@ as %40, : as %3A, / as %2F, # as %23)"
MAX_HOST = 253
MAX_LABEL = 63
MAX_VHOST = 255
_MOST_DIGITS = 12
_SHAPE = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?"
)
_ENTITY = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=%-]*\Z")
_SERVER_NAME = re.compile(r"[A-Za-z0-9._-]+\Z")
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]+(?:%25[A-Za-z0-9._~-]+)?\]\Z")


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings; the peer is verified unless disabled explicitly. `are_own`: the address itself has some of them, be
    they the defaults.
    """

    cacertfile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    verify: bool = True
    password: Secret | None = None
    depth: int | None = None
    server_name_indication: str | None = None
    fail_if_no_peer_cert: bool | None = None
    are_own: bool = field(default=False, compare=False)


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
    """Splits a URL; user info and query are percent-decoded, host and path stay as written."""
    if not text.isascii() or any(ch <= " " or ch == "\x7f" for ch in text):
        raise UriError(f"the URI contains a blank, a control character or a non-ASCII character; {ENCODE}")
    if _ENTITY.search(text):
        raise UriError("a '%' in the URI isn't followed by two hexadecimal digits; write a literal one as %25")
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise UriError(_why_invalid(text, schemes))
    if found["scheme"].lower() not in schemes:
        raise UriError(f"the scheme must be {' or '.join(schemes)}")
    _refuse_at_sign_after_host(found["authority"], found["path"] or "", found["query"] or "")
    user, password, host, port = _split_authority(found["authority"])
    return UrlParts(found["scheme"].lower(), user, password, host, port, found["path"], _split_query(found["query"]))


def _why_invalid(text: str, schemes: tuple[str, ...]) -> str:
    if "://" not in text:
        return f"the URI has no scheme; write {' or '.join(f'{scheme}://HOST' for scheme in schemes)}"
    if "#" in text:
        return f"a '#' ends the URI early; {ENCODE}"
    return "the URI is invalid; write SCHEME://USER:PASSWORD@HOST:PORT/PATH"


def _refuse_at_sign_after_host(authority: str, path: str, query: str) -> None:
    """Raise UriError if there is an '@' after the host: a '/' or '?' in a password ends the host early, and the
    password's rest would be shown as a path."""
    if "@" in path or ("@" in query and "@" not in authority):
        raise UriError(f"there is an '@' after the host; {ENCODE}")


def _split_authority(authority: str) -> tuple[str | None, Secret | None, str, int | None]:
    userinfo, at, hostport = authority.rpartition("@")
    if "@" in userinfo:
        raise UriError(f"there is more than one '@' before the host; {ENCODE}")
    user, colon, password = (decode(part) for part in userinfo.partition(":"))
    refuse_nul(user + password, "the user or password")
    host, port = _split_host(hostport)
    return (user if at else None, Secret(password) if colon else None, host, port)


def _split_host(hostport: str) -> tuple[str, int | None]:
    if hostport.startswith("["):
        host, bracket, rest = hostport.partition("]")
        host, port_text = host + bracket, rest.removeprefix(":")
        valid = _IPV6.match(host) is not None and _is_address(decode(host[1:-1]))
        valid = valid and (not rest or rest.startswith(":"))
    else:
        host, _, port_text = hostport.partition(":")
        valid = _HOST.match(host) is not None
        valid = valid and _resolvable(decode(host))
    if not valid:
        raise UriError(f"the host is invalid; {ENCODE}; put an IPv6 address in brackets")
    if not port_text:
        return host, None
    if not port_text.isdigit() or not 0 < _bounded(port_text) <= 65535:
        raise UriError(f"the port is not a number from 1 to 65535; {ENCODE}")
    if not host:
        raise UriError("a port needs a host before it")
    return host, int(port_text)


def _resolvable(host: str) -> bool:
    """True if a resolver accepts the name: labels of 1 to 63 bytes, 253 in total, optionally a dot at the end."""
    if not host:
        return True
    labels = host.removesuffix(".").split(".")
    if len(host) > MAX_HOST or not all(0 < len(label.encode()) <= MAX_LABEL for label in labels):
        return False
    try:
        host.isascii() or host.encode("idna")
    except UnicodeError:
        return False
    return host.isprintable()


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def check_server_name(name: str) -> None:
    """The name for TLS has to be a host name or an address; `disable` also matches this rule."""
    if not name:
        raise UriError("server_name_indication is empty; remove it to check the host's name, or write 'disable'")
    if not (_is_address(name) or (_SERVER_NAME.match(name) and _resolvable(name))):
        raise UriError("server_name_indication is neither a host's name nor 'disable'")


def check_file(path: str, key: str) -> None:
    if not path:
        raise UriError(f"{key} is empty; name a file or remove it")
    refuse_nul(path, key)


def refuse_nul(text: str, key: str) -> None:
    if "\0" in text:
        raise UriError(f"{key} contains a NUL character, which is not allowed")


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


def number(value: str, key: str, *, high: int) -> int:
    if not value.isdecimal() or _bounded(value) > high:
        raise UriError(f"{key} must be a whole number from 0 to {high}")
    return _bounded(value)


def _bounded(digits: str) -> int:
    """Parses a number without reading thousands of digits; a number that is too large stays too large."""
    return int(digits.lstrip("0")[:_MOST_DIGITS] or "0")


def warn_tls(query: Mapping[str, str], *, scheme: str, secure: str) -> tuple[str, ...]:
    """Warns about TLS parameters without effect, or with less effect than expected."""
    if scheme != secure:
        return (f"TLS parameters do nothing with {scheme}://; write {secure}://",) if TLS_KEYS & query.keys() else ()
    if query.get("verify") == "verify_none":
        return ("verify=verify_none: the server's identity is not checked; set cacertfile instead",)
    return ()


def warn_unknown(keys: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Warnings about unknown parameters, which are ignored as in RabbitMQ. A name is shown only if it is similar to a
    known one: it may be the rest of a password cut at an '&'."""
    known = sorted(known)
    return tuple(
        "a query parameter of the URI is unknown and ignored" + did_you_mean(key, known)
        for key in keys
        if key not in known
    )


FILE_KEYS = frozenset({"cacertfile", "certfile", "keyfile"})
TLS_KEYS = FILE_KEYS | {
    "verify", "fail_if_no_peer_cert", "password", "depth", "server_name_indication", "customize_hostname_check",
}  # fmt: skip


def read_tls(query: dict[str, str]) -> Tls:
    verify = query.get("verify", "verify_peer")
    if verify not in {"verify_peer", "verify_none"}:
        raise UriError("verify must be verify_peer or verify_none")
    peer_cert = query.get("fail_if_no_peer_cert")
    if peer_cert not in {None, "true", "false"}:
        raise UriError("fail_if_no_peer_cert must be true or false")
    for key in FILE_KEYS & query.keys():
        check_file(query[key], key)
    if "keyfile" in query and "certfile" not in query:
        raise UriError("keyfile is given without certfile")
    if "server_name_indication" in query:
        check_server_name(query["server_name_indication"])
    return Tls(
        **{key: query.get(key) for key in FILE_KEYS},
        verify=verify == "verify_peer",
        password=Secret(query["password"]) if "password" in query else None,
        depth=number(query["depth"], "depth", high=255) if "depth" in query else None,
        server_name_indication=query.get("server_name_indication"),
        fail_if_no_peer_cert=None if peer_cert is None else peer_cert == "true",
        are_own=not TLS_KEYS.isdisjoint(query),
    )
