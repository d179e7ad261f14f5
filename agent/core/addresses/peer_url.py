"""The address of another agent: `http://HOST:PORT`, and its token as the password of the URL."""

from __future__ import annotations

from typing import Final

from agent.core.addresses.http_url import HttpUrl
from agent.core.addresses.secret import Secret
from agent.core.addresses.url_text import TLS_KEYS, read_tls, split, warn_tls, warn_unknown
from agent.errors import UriError

PORT: Final = 9419


def parse_peer(text: str) -> HttpUrl:
    parts = split(text, ("http", "https"))
    if not parts.host:
        raise UriError("the URL names no host")
    query = dict(parts.query)
    secure = parts.scheme == "https"
    return HttpUrl(
        scheme=parts.scheme,
        host=parts.host,
        port=parts.port or (443 if secure else PORT),
        user=parts.user or "",
        password=parts.password or Secret(""),
        path=(parts.path or "").rstrip("/"),
        tls=read_tls(query) if secure else None,
        warnings=(*warn_unknown(query, TLS_KEYS), *warn_tls(query, scheme=parts.scheme, secure="https")),
    )
