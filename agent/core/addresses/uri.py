"""AMQP URIs with every parameter that RabbitMQ understands, and URLs of its HTTP API, or of another agent, whose token
is the password of the URL. Only `safe` of either is ever shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from agent.core.addresses import url_text
from agent.core.addresses.secret import Secret
from agent.core.addresses.url_text import (
    MAX_VHOST,
    TLS_KEYS,
    Tls,
    UrlParts,
    decode,
    encode,
    read_tls,
    split,
    warn_tls,
    warn_unknown,
)
from agent.errors import UriError

GUEST = "guest"
ANONYMOUS = "anon"  # as native AMQP 1.0 shovels write it; that is the default where no user is named
DEFAULT_HEARTBEAT = 10
DEFAULT_CONNECTION_TIMEOUT = 60_000
MIN_FRAME_MAX = 4096
FRAME_MAX_SINCE_4_1 = 8192
_TUNING_KEYS = {
    "heartbeat": 2**16 - 1,
    "connection_timeout": 2**31 - 1,
    "channel_max": 2**16 - 1,
    "frame_max": 2**31 - 1,
}
_KNOWN_KEYS = frozenset({*_TUNING_KEYS, "auth_mechanism", "hostname", "sasl", *TLS_KEYS})
_VHOST = "vhost:"
_DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}


class Mechanism(StrEnum):
    PLAIN = "plain"
    AMQPLAIN = "amqplain"
    EXTERNAL = "external"


@dataclass(frozen=True, slots=True)
class AmqpUri:
    """One endpoint. An empty host means the downstream itself; no path means the downstream's vhost."""

    scheme: str = "amqp"
    host: str = ""
    port: int | None = None
    user: str | None = field(default=None, repr=False)
    password: Secret | None = None
    path: str | None = None
    heartbeat: int | None = None
    connection_timeout: int | None = None
    channel_max: int | None = None
    frame_max: int | None = None
    mechanisms: tuple[Mechanism, ...] = ()
    tls: Tls | None = None
    hostname: str | None = None  # for AMQP 1.0, where it isn't the host or made from the path
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_downstream_itself(self) -> bool:
        return not self.host

    @property
    def connect_host(self) -> str:
        """The host for a resolver: no brackets, no percent-encoding."""
        return decode(self.host.strip("[]"))

    @property
    def connect_port(self) -> int:
        return self.port or _DEFAULT_PORTS[self.scheme]

    @property
    def login(self) -> tuple[str, Secret]:
        return self.user if self.user is not None else GUEST, self.password or Secret(GUEST)

    def vhost(self, default: str) -> str:
        """The vhost it names, or the default."""
        return default if self.path is None else decode(self.path[1:])

    def in_vhost(self, vhost: str) -> AmqpUri:
        """The same broker's address for this vhost; the one that the URI itself names doesn't count."""
        return replace(self, path="/" + encode(vhost))

    @property
    def safe(self) -> str:
        """Scheme, host, port and path as written: the only form that is ever shown or sent in a header."""
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}{self.path or ''}"

    def __str__(self) -> str:
        return self.safe


def parse(text: str) -> AmqpUri:
    parts = url_text.split(text, tuple(_DEFAULT_PORTS))
    if parts.path and "/" in parts.path[1:]:
        raise UriError("the path names one vhost; write a '/' inside its name as %2F")
    query = dict(reversed(parts.query))
    path = _path(parts, query)
    vhost = decode(path[1:]) if path else ""
    if len(vhost.encode()) > MAX_VHOST:
        raise UriError(f"the path is longer than the {MAX_VHOST} bytes of a vhost's name")
    url_text.refuse_nul(vhost, "the path")
    secure = parts.scheme == "amqps"
    tuning = {key: url_text.number(query[key], key, high=high) for key, high in _TUNING_KEYS.items() if key in query}
    if 0 < tuning.get("frame_max", 0) < MIN_FRAME_MAX:
        raise UriError(f"frame_max must be 0 or at least {MIN_FRAME_MAX}")
    return AmqpUri(
        scheme=parts.scheme,
        host=parts.host,
        port=parts.port,
        user=parts.user,
        password=parts.password,
        path=path,
        mechanisms=tuple(
            _mechanism(value)
            for key, value in parts.query
            if key == "auth_mechanism" or (key == "sasl" and value != ANONYMOUS)
        ),
        hostname=query.get("hostname"),
        tls=url_text.read_tls(query) if secure else None,
        warnings=_warnings(parts, query, tuning),
        **tuning,
    )


def from_parts(
    *,
    host: str,
    protocol: str = "amqp",
    port: int | None = None,
    virtual_host: str | None = None,
    username: str | None = None,
    password: Secret | None = None,
    mechanism: Mechanism | None = None,
    heartbeat: int | None = None,
    tls: Tls | None = None,
) -> AmqpUri:
    """The endpoint that the 2.x plugin's separate properties describe."""
    bracketed = f"[{host.strip('[]')}]" if ":" in host else encode(host)
    url_text.split(
        f"{protocol}://{bracketed}", tuple(_DEFAULT_PORTS)
    )  # a host that is invalid in a URI is invalid here too
    return AmqpUri(
        scheme=protocol,
        host=bracketed,
        port=port,
        user=username if username is not None or password is None else GUEST,
        password=password,
        path=None if virtual_host is None else "/" + encode(virtual_host),
        heartbeat=heartbeat,
        mechanisms=() if mechanism is None else (mechanism,),
        tls=(tls or Tls()) if protocol == "amqps" else None,
    )


def _path(parts: UrlParts, query: dict[str, str]) -> str | None:
    """The path, which names the vhost. Native AMQP 1.0 shovels name it by `hostname=vhost:NAME` instead."""
    hostname = query.get("hostname", "")
    if parts.path in (None, "/") and hostname.startswith(_VHOST):
        return "/" + encode(hostname.removeprefix(_VHOST))
    return parts.path


def _mechanism(value: str) -> Mechanism:
    try:
        return Mechanism(value.lower())
    except ValueError:
        raise UriError(f"auth_mechanism must be one of {', '.join(Mechanism)}") from None


def _warnings(parts: UrlParts, query: dict[str, str], tuning: dict[str, int]) -> tuple[str, ...]:
    found = list(url_text.warn_unknown(query, _KNOWN_KEYS))
    if _path(parts, query) == "/":
        found.append("the URI's bare trailing '/' means the vhost named '' to RabbitMQ; write /%2f for the vhost '/'")
    found += url_text.warn_tls(query, scheme=parts.scheme, secure="amqps")
    if 0 < tuning.get("frame_max", 0) < FRAME_MAX_SINCE_4_1:
        found.append(f"brokers from 4.1 on refuse a frame_max below {FRAME_MAX_SINCE_4_1}")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class HttpUrl:
    scheme: str
    host: str
    port: int
    user: str = field(repr=False)
    password: Secret
    path: str = ""
    tls: Tls | None = None
    warnings: tuple[str, ...] = field(default=(), compare=False)
    has_login: bool = field(default=True, compare=False)  # of its own; otherwise it is guest's

    @property
    def safe(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}{self.path}"

    def __str__(self) -> str:
        return self.safe

    def completed(self, login: tuple[str, Secret], tls: Tls | None) -> HttpUrl:
        """The URL with this login and these TLS settings where it has none of its own."""
        user, password = (self.user, self.password) if self.has_login else login
        has_default = self.tls is not None and not self.tls.are_own
        return replace(self, user=user, password=password, tls=tls if tls and has_default else self.tls)


def parse_http(text: str) -> HttpUrl:
    return _parse_http(text, port=15672, tls_port=15671, default_login=GUEST)


def parse_peer(text: str) -> HttpUrl:
    return _parse_http(text, port=9419, tls_port=443, default_login="")


def _parse_http(text: str, *, port: int, tls_port: int, default_login: str) -> HttpUrl:
    parts = split(text, ("http", "https"))
    if not parts.host:
        raise UriError("the URL names no host")
    query = dict(parts.query)
    secure = parts.scheme == "https"
    return HttpUrl(
        scheme=parts.scheme,
        host=parts.host,
        port=parts.port or (tls_port if secure else port),
        user=parts.user if parts.user is not None else default_login,
        password=parts.password or Secret(default_login),
        path=(parts.path or "").rstrip("/"),
        tls=read_tls(query) if secure else None,
        has_login=parts.user is not None,
        warnings=(*warn_unknown(query, TLS_KEYS), *warn_tls(query, scheme=parts.scheme, secure="https")),
    )
