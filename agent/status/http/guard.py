"""Access control: the token, and protection against pages of other sites in a browser on this machine."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from agent.core.addresses.secret import Secret
from agent.core.settings import HttpSettings
from agent.status.http.responses import refuse
from agent.status.page.serve import is_page

PROBES: Final = frozenset({"/livez", "/readyz"})
EVENTS: Final = "/api/events"
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
BY_A_PROGRAM: Final = "X-Federation-Agent"
"""Sent by our commands with a change. No page of another site can send it, so with it any host name is accepted."""
BROWSERS: Final = ("Origin", "Sec-Fetch-Site")
"""The headers that browsers send with every change, and that no page can omit."""


class ProbesOnly:
    """Answers probes only: for an agent whose configuration isn't valid yet."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def refusal(self, request: web.Request) -> web.Response | None:
        """The response that refuses the request, or None."""
        return None if request.path in PROBES else refuse(503, self._reason)


class Guard:
    """`token` is asked for at each request, so that a renewed one counts at once."""

    def __init__(self, settings: HttpSettings, token: Callable[[], Secret | None] = lambda: None) -> None:
        self._settings = settings
        self._renewed = token
        self._is_local = is_loopback(settings.host)
        self._names = {settings.host.lower()} | (set() if self._is_local else _machine_names())

    def refusal(self, request: web.Request) -> web.Response | None:
        """The response that refuses the request, or None."""
        if not _is_for_all(request.path) and not self._has_token(request):
            is_named = self._names_this_agent(request)
            if self._needs_token(request, is_named=is_named):
                return refuse(401, "a token is needed: Authorization: Bearer TOKEN", WWW_Authenticate="Bearer")
            if not is_named:
                return refuse(403, self._name_advice(request.host[:64]))
        if request.method not in READING and _is_from_another_site(request):
            return refuse(403, "pages of other sites may not change anything here")
        return None

    def _needs_token(self, request: web.Request, *, is_named: bool) -> bool:
        """Changes always need it if one is set; reading needs it only if the agent listens beyond loopback."""
        if self._token is None:
            return False
        is_open = self._settings.allow_anonymous or self._is_local
        return request.method not in READING or not (is_open and is_named)

    @property
    def _token(self) -> Secret | None:
        """The present token. One that is no longer configured stays: the address that needs it is served until the
        agent ends."""
        return self._renewed() or self._settings.token

    def _has_token(self, request: web.Request) -> bool:
        token = self._token
        if token is None:
            return False
        given = _bearer(request.headers.get("Authorization", ""))
        if not given and request.path == EVENTS:  # a browser's EventSource can't send headers
            given = request.query.get("access_token", "")
        return hmac.compare_digest(given.encode(errors="replace"), token.reveal().encode())

    def _names_this_agent(self, request: web.Request) -> bool:
        """True if a request without a token can't come from a foreign page by DNS rebinding.

        Beyond loopback everyone may read under any name. A change needs a name that no one else can point to the agent,
        or the header of a program and none that a browser sends.
        """
        if not self._is_local and (request.method in READING or _is_by_a_program(request)):
            return True
        name = (urlsplit(f"//{request.host}").hostname or "") if _is_parsable(request.host) else ""
        return _is_local_name(name) or name in self._names

    def _name_advice(self, host: str) -> str:
        """The advice if the name is refused."""
        if self._is_local:
            return f"this agent isn't called {host!r}; use its address or localhost"
        return (
            f"without agent.http.token changes under the name {host!r} are refused: use the agent's IP address or set "
            f"a token; a program that is not a browser may send {BY_A_PROGRAM}: 1"
        )


def _is_for_all(path: str) -> bool:
    """True for probes and the page's own files, which contain nothing that needs protection."""
    return path in PROBES or is_page(path)


def _is_by_a_program(request: web.Request) -> bool:
    return BY_A_PROGRAM in request.headers and not any(name in request.headers for name in BROWSERS)


def _bearer(header: str) -> str:
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _is_from_another_site(request: web.Request) -> bool:
    """True if a page of another site sent the request. Browsers send these headers, old ones only `Origin`, which
    differs behind a proxy; other programs send none."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = request.headers.get("Origin")
    if origin is None:
        return False
    return not _is_parsable(origin) or urlsplit(origin).netloc.lower() != request.host.lower()


def _is_parsable(address: str) -> bool:
    try:
        urlsplit(address if "//" in address else f"//{address}")
    except ValueError:
        return False
    return True


def _is_local_name(name: str) -> bool:
    """True for names that no foreign name server resolves."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _machine_names() -> set[str]:
    name = socket.gethostname().lower()
    return {name, name.partition(".")[0]}


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
