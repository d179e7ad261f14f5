"""Warns of passwords and tokens that a configuration holds itself, instead of naming where they are."""

from __future__ import annotations

import re
from typing import Final

from agent.core.addresses import http_url, uri
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import GUEST
from agent.core.addresses.url_text import Tls
from agent.definitions.document.findings import Path, Spot
from agent.definitions.document.yaml import Tree
from agent.errors import UriError

WARNING: Final = (
    "a {what} is written here, so everyone who can read or copy this file has it; write ${{env:NAME}} or ${{file:PATH}}"
)
_REFERENCE: Final = re.compile(r"\$\{(?:env|file):[^{}]*\}")
_ELSEWHERE: Final = "49613"  # may be a password, a host and a port


def warn_of_written_secrets(tree: Tree, spot: Spot) -> None:
    def look(text: str, path: Path) -> str:
        what = _written(_REFERENCE.sub(_ELSEWHERE, text), _in_vhost(path))
        if what:
            spot.warn(WARNING.format(what=what), *path)
        return text

    tree.plain(look)


def _in_vhost(path: Path) -> Path:
    """As it would be in the default vhost."""
    return path[2:] if path[:1] == ("vhosts",) else path


def _written(text: str, path: Path) -> str:
    """What secret is written there; empty if none is."""
    match path:
        case ("agent", "http", "token"):
            return "token" if _is_secret(text) else ""
        case ("upstreams", _, "password") | (*_, "ssl-options", "password"):
            return "password" if _is_secret(text) else ""
        case ("downstream", "uri" | "management", *_) | ("upstreams", _, "uri" | "management", *_):
            return "password" if _holds_secret(text) else ""
        case ("agent", "peers", *_):
            return "token" if _holds_secret(text) else ""
        case ("shovels", _, "src-uri" | "dest-uri", *_):
            return "password" if _holds_secret(text) else ""
        case _:
            return ""


def _holds_secret(text: str) -> bool:
    """Of a URI. One that can't be read is an error of its own."""
    parse = http_url.parse if text[:4].lower() == "http" else uri.parse
    try:
        found = parse(text)
    except UriError:
        return False
    return any(secret is not None and _is_secret(secret.reveal()) for secret in (found.password, _of_key(found.tls)))


def _of_key(tls: Tls | None) -> Secret | None:
    return None if tls is None else tls.password


def _is_secret(text: str) -> bool:
    """Everyone knows the password of guest, who may log in on the broker's own machine only."""
    return bool(text) and text != GUEST and _ELSEWHERE not in text
