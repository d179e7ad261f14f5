"""The address of a RabbitMQ HTTP API, or of another agent, whose token is the password of the URL."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import GUEST
from agent.core.addresses.url_text import TLS_KEYS, Tls, read_tls, split, warn_tls, warn_unknown
from agent.errors import UriError


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


def parse(text: str) -> HttpUrl:
    return _parse(text, port=15672, tls_port=15671, default_login=GUEST)


def parse_peer(text: str) -> HttpUrl:
    return _parse(text, port=9419, tls_port=443, default_login="")


def _parse(text: str, *, port: int, tls_port: int, default_login: str) -> HttpUrl:
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
