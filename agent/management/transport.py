"""One GET from any of several interchangeable HTTP APIs, and an operator's words for what they refuse."""

from __future__ import annotations

import base64
import errno
import json
import ssl
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import aiohttp
from yarl import URL

from agent.core.http_url import HttpUrl
from agent.core.redaction import redacted
from agent.errors import BrokerError, PermanentError, TransientError
from agent.network import explain, hung_up, server_name, tls_context

NOT_RABBITMQ = "this is not RabbitMQ's HTTP API: check the address and port (15672 by default)"
_MOST_TEXT = 2_000  # is looked at
_MAX_TEXT = 200
_LOGIN_FAILED = ("Login failed", "Not_Authorized")
_NO_TAG = "Not management user"
_ONLY_LOCAL = "User can only log in via localhost"


class Missing:
    """RabbitMQ answered that there is no such object, or no such route."""


MISSING = Missing()


class Transport:
    """Asks the address that answered last, and the others at once where it fails."""

    def __init__(self, urls: Sequence[HttpUrl], *, where: str, setting: str, timeout: float) -> None:
        if not urls:
            raise ValueError("no address of an HTTP API")
        self._urls = list(urls)
        self._where = where
        self._setting = setting
        self._timeout = timeout
        self._contexts: dict[HttpUrl, ssl.SSLContext] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self._timeout, sock_connect=min(self._timeout, 5.0)),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, *, needs: str) -> Any:
        """The answer's JSON, or MISSING; `needs` says which tag or permission the path takes."""
        failures: list[BrokerError] = []
        for url in tuple(self._urls):
            try:
                answer = await self._ask(url, path, needs)
            except BrokerError as error:
                failures.append(error)
                self._contexts.pop(url, None)  # its files may have been renewed
            else:
                self._prefer(url)
                return answer
        raise _joined(failures)

    def _prefer(self, url: HttpUrl) -> None:
        self._urls.remove(url)
        self._urls.insert(0, url)

    async def _ask(self, url: HttpUrl, path: str, needs: str) -> Any:
        where = f"{self._where} {url.safe}"
        try:
            status, content_type, body = await self._exchange(url, path, where)
        except (aiohttp.ClientResponseError, aiohttp.ClientPayloadError) as error:
            # Not chained: such an error holds the request's headers, and so the password.
            raise TransientError(f"{where}: {_brief(error)}: {NOT_RABBITMQ}") from None
        except (aiohttp.ClientError, OSError) as error:
            if url.tls is not None and _is_hang_up(error):
                raise hung_up(url.tls, where=where) from error
            raise explain(error, where=where, seconds=self._timeout) from error
        return self._read(url, where, status=status, content_type=content_type, body=body, needs=needs)

    async def _exchange(self, url: HttpUrl, path: str, where: str) -> tuple[int, str, bytes]:
        if self._session is None:
            raise RuntimeError("the client is used outside its `async with`")
        async with self._session.get(
            URL(f"{url.safe}/api/{path}", encoded=True),
            headers={"Authorization": _basic(url)},  # no Accept: with one, RabbitMQ answers a missing route with 406
            allow_redirects=False,
            ssl=await self._context(url, where),
            server_hostname=None if url.tls is None else server_name(url.tls, url.host.strip("[]")) or None,
        ) as response:
            return response.status, response.content_type, await response.read()

    async def _context(self, url: HttpUrl, where: str) -> ssl.SSLContext | bool:
        if url.tls is None:
            return True
        if url not in self._contexts:
            self._contexts[url] = await tls_context(url.tls, where=where)
        return self._contexts[url]

    def _read(self, url: HttpUrl, where: str, *, status: int, content_type: str, body: bytes, needs: str) -> Any:
        answer = _json(body) if content_type == "application/json" else None
        if status == 200 and answer is not None:
            return answer
        reason = _shown(str(answer.get("reason", "")), url) if isinstance(answer, dict) else ""
        if status == 404 and reason:
            return MISSING
        if status in {401, 403}:
            what, advice = self._refusal(url.user, reason, needs)
            raise PermanentError(f"{where}: {what} ({status}): {advice}")
        if status >= 500 or status == 429:
            why = f"{status}: {reason}" if reason else str(status)
            raise TransientError(f"{where}: the HTTP API fails ({why}): see the broker's log")
        if 300 <= status < 400:
            raise PermanentError(f"{where}: redirects elsewhere ({status}): give the final address in {self._setting}")
        kind = _shown(content_type, url)
        raise PermanentError(f"{where}: unexpected answer ({status}, {kind}): {NOT_RABBITMQ}")

    def _refusal(self, user: str, reason: str, needs: str) -> tuple[str, str]:
        """RabbitMQ answers 401 both to a wrong password and to a lack of permission; its reason tells which."""
        if reason == _NO_TAG:
            return f"user {user!r} may not use the HTTP API", "it needs the tags policymaker and monitoring"
        if reason == _ONLY_LOCAL:
            return f"user {user!r} may log in from the broker's own host only", "use another user"
        if not reason or reason in _LOGIN_FAILED:
            return f"login refused for user {user!r}", f"check user and password in {self._setting}"
        return f"refused for user {user!r}", f"it needs {needs}"


def _shown(text: str, url: HttpUrl) -> str:
    """A server's own words, as a message may quote them."""
    return redacted(" ".join(text[:_MOST_TEXT].split()), url.password, user=url.user)[:_MAX_TEXT]


def _basic(url: HttpUrl) -> str:
    return "Basic " + base64.b64encode(f"{url.user}:{url.password.reveal()}".encode()).decode()


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _is_hang_up(error: aiohttp.ClientError | OSError) -> bool:
    reset = isinstance(error, OSError) and error.errno in {errno.ECONNRESET, errno.EPIPE}
    return reset or isinstance(error, aiohttp.ServerDisconnectedError)


def _brief(error: aiohttp.ClientError) -> str:
    return "no HTTP is spoken there" if isinstance(error, aiohttp.ClientResponseError) else "the answer broke off"


def _joined(failures: Sequence[BrokerError]) -> BrokerError:
    """One failure for all addresses; trying again may help if it may for any of them."""
    if len(failures) == 1:
        return failures[0]
    kind = next((type(error) for error in failures if isinstance(error, TransientError)), PermanentError)
    joined = kind("; ".join(str(error) for error in failures))
    joined.__cause__ = failures[0]
    return joined
