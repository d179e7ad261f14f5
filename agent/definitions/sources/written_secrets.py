"""Warns of passwords and tokens that a configuration holds itself, instead of naming where they are."""

from __future__ import annotations

import re
from typing import Final

from agent.core.addresses import http_url, uri
from agent.core.addresses.uri import GUEST
from agent.definitions.document.findings import Path, Spot
from agent.definitions.document.yaml import Tree
from agent.errors import UriError

WARNING: Final = (
    "a {what} is written here, so everyone who can read or copy this file has it; write ${{env:NAME}} or ${{file:PATH}}"
)
_REFERENCE: Final = re.compile(r"\$\{(?:env|file):[^{}]*\}")
_ELSEWHERE: Final = "49613"  # may be a password, a host and a port


def warn_of_written_secrets(tree: Tree, spot: Spot) -> None:
    texts: dict[Path, str] = {}

    def note(text: str, path: Path) -> str:
        texts[path] = _REFERENCE.sub(_ELSEWHERE, text)
        return text

    tree.plain(note)
    for path, text in texts.items():
        user = texts.get((*path[:-1], "username"), GUEST)
        what = _written(text, _in_vhost(path), user=user)
        if what:
            spot.warn(WARNING.format(what=what), *path)


def _in_vhost(path: Path) -> Path:
    """As it would be in the default vhost."""
    return path[2:] if path[:1] == ("vhosts",) else path


def _written(text: str, path: Path, *, user: str) -> str:
    """What secret is written there; empty if none is. `user` is whose password a key beside it holds."""
    match path:
        case ("agent", "http", "token"):
            return "token" if _is_secret(text) else ""
        case ("upstreams", _, "password"):
            return "password" if _is_secret_of(user, text) else ""
        case (*_, "ssl-options", "password"):
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
    key = None if found.tls is None else found.tls.password
    is_key_written = key is not None and _is_secret(key.reveal())
    return is_key_written or (found.password is not None and _is_secret_of(found.user, found.password.reveal()))


def _is_secret_of(user: str | None, password: str) -> bool:
    """Everyone knows the password of guest, who may log in on the broker's own machine only."""
    return _is_secret(password) and (user, password) != (GUEST, GUEST)


def _is_secret(text: str) -> bool:
    return bool(text) and _ELSEWHERE not in text
