"""Warns of passwords and tokens that a configuration holds itself, instead of naming where they are."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml as pyyaml

from agent.core.addresses import uri
from agent.core.addresses.secret import HIDDEN
from agent.core.addresses.uri import GUEST, parse_http
from agent.definitions.document import yaml
from agent.definitions.document.findings import Path, Spot
from agent.definitions.document.yaml import Tree
from agent.errors import UriError

WARNING: Final = (
    "a {what} is written here, so everyone who can read or copy this file has it; write ${{env:NAME}} or ${{file:PATH}}"
)
_REFERENCE: Final = re.compile(r"\$\{(?:env|file):[^{}]*\}")
_DOUBTFUL: Final = re.compile("pas|pwd|tok|secret|cred", re.IGNORECASE)
_URL: Final = re.compile(
    r"(?P<scheme>[a-z]{1,8})://(?:[^@/?]*@)?(?P<place>(?:[\w.-]+|\[[0-9a-fA-F:]+\])?(?::\d{1,5})?(?:/[\w.%~-]*)?)(?:\?[^@]*)?"
)
_SHOWN_KEYS: Final = """
    name group files directory pattern type exchange queue upstream upstream-set key federation-upstream
    federation-upstream-set federation-upstream-pattern host virtual-host username src-queue src-exchange
    src-exchange-key src-address dest-queue dest-exchange dest-exchange-key dest-address cacertfile certfile keyfile
"""
_SHOWN_VALUES: Final = """
    on-confirm on-publish no-ack auto never default exchanges queues classic_queues quorum_queues all classic quorum
    amqp amqps amqp091 amqp10 local plain external verify_peer verify_none queue-length json console link upstream info
    debug
"""
_NUMBER: Final = re.compile(r"[\d.:]{1,40}[smhd]?")
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


def without_secrets(path: str) -> str:
    """A configuration for others to read: without comments, and without whatever may be a secret, whether the document
    is valid or not. References stay, since they only say where one is. Raises ConfigurationError."""
    return pyyaml.safe_dump(_shown(yaml.compose_file(path).plain()), sort_keys=False, allow_unicode=True)


def _shown(value: Any, key: str = "") -> Any:
    """The value as others may read it: numbers, unless the key may be a misspelt `password`; texts of a few keys, and
    of a URL scheme, host, port and path."""
    if isinstance(value, str):
        return _shown_text(value, key)
    if _DOUBTFUL.search(key):
        return HIDDEN
    match value:
        case dict():
            return {_shown_text(name, "name"): _shown(each, name) for name, each in value.items()}
        case list():
            return [_shown(each, key) for each in value]
    return value


def _shown_text(text: str, key: str) -> str:
    if _REFERENCE.fullmatch(text):
        return text
    if "://" not in text:
        is_harmless = text in _SHOWN_VALUES.split() or (_NUMBER.fullmatch(text) and not _DOUBTFUL.search(key))
        return text if is_harmless or (key in _SHOWN_KEYS.split() and "@" not in text) else HIDDEN
    found = _URL.fullmatch(text)
    return HIDDEN if found is None else f"{found['scheme']}://{found['place']}"


def _in_vhost(path: Path) -> Path:
    """The path as it would be in the default vhost."""
    return path[2:] if path[:1] == ("vhosts",) else path


def _written(text: str, path: Path, *, user: str) -> str:
    """The kind of secret that is written there; empty if none is. A key beside it may name the `user` of a password."""
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
    """True if a URI holds a secret. One that can't be read is an error of its own."""
    parse = parse_http if text[:4].lower() == "http" else uri.parse
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
