"""One request to any of several interchangeable HTTP APIs, and their errors in an operator's words.

Why: docs/decisions/0029-http-retries.md
"""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

import aiohttp
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, stop_before_delay
from tenacity.wait import wait_random_exponential
from yarl import URL

from agent.core.addresses.secret import redacted
from agent.core.addresses.uri import HttpUrl
from agent.core.addresses.url_text import Tls
from agent.errors import BrokerError, Failure, FailureKind, PermanentError, TransientError, joined
from agent.look_up import Resolver
from agent.management.answers import ShapeError
from agent.management.elements import STEP, ListReader, NotAListError, TooMuchError
from agent.network import explain, hung_up, server_name, tls_context

NOT_RABBITMQ = "this is not RabbitMQ's HTTP API: check the address and port (15672 by default)"
_MOST_TEXT = 2_000  # is examined
_MAX_TEXT = 200
DEFAULT_TIMEOUT = 30.0
MAX_LIST: Final = 64 * 1024 * 1024  # 40,000 bindings take 10 MiB
MAX_ONE: Final = 1024 * 1024
_TOO_LARGE: Final = "remove what nobody needs there, or give the agent a user who sees fewer vhosts"
ATTEMPTS: Final = 3
GET: Final = "GET"
DELETE: Final = "DELETE"
_DONE: Final = frozenset({201, 204})
FIRST_WAIT, LONGEST_WAIT = 0.2, 1.0  # before another attempt, at most
_CONNECT_WITHIN: Final = 5.0
_GATEWAY_FAILED: Final = frozenset({502, 503, 504})
_LOGIN_FAILED = ("Login failed", "Not_Authorized")
_NO_TAG = "Not management user"
_ONLY_LOCAL = "User can only log in via localhost"


T = TypeVar("T")
Contexts: TypeAlias = dict[Tls, ssl.SSLContext]
"""TLS contexts by settings. Each takes 20 ms and a megabyte: clients that ask many brokers share them."""


class TooLargeError(PermanentError):
    """A response is larger than the agent accepts."""


class NotTakenError(PermanentError):
    """The broker doesn't take an object; `what` is its reason."""


class PassingError(TransientError):
    """A reset, a time-out or a gateway without a broker behind it: the same question may be answered in a moment."""


@dataclass(frozen=True, slots=True)
class _Request:
    """`needs` is the tag or permission that the path needs; `read` reads the body of what is found, if there is any."""

    path: str
    needs: str
    read: Callable[[aiohttp.ClientResponse], Awaitable[Any]] | None = None
    method: str = GET
    content: bytes | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        return {} if self.content is None else {"Content-Type": "application/json"}

    @property
    def changes(self) -> bool:
        return self.method != GET

    @property
    def route(self) -> str:
        return f"{self.method} /api/{self.path.partition('?')[0]}"


class Transport:
    """Asks the address that answered last, and the others at once where it fails.

    Where all fail and one of them may be better in a moment, all are asked again, as long as `timeout` isn't over.
    """

    def __init__(
        self,
        urls: Sequence[HttpUrl],
        *,
        where: str = "downstream",
        setting: str = "downstream.management",
        timeout: float = DEFAULT_TIMEOUT,
        contexts: Contexts | None = None,
    ) -> None:
        if not urls:
            raise ValueError("no address of an HTTP API")
        self._urls = list(urls)
        self._where = where
        self._setting = setting
        self._timeout = timeout
        self._contexts: Contexts = {} if contexts is None else contexts
        self._session: aiohttp.ClientSession | None = None
        self.date: str | None = None
        """The server's time in its last answer, as HTTP writes it."""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=Resolver()),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # a few KiB may hold gigabytes
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def server_time(self) -> datetime | None:
        """`date` as a time; None where the server gives none."""
        try:
            return parsedate_to_datetime(self.date or "").astimezone(UTC)
        except (ValueError, OverflowError):
            return None

    async def get(self, path: str, *, needs: str) -> Any:
        """The response's JSON, None where there is no such object or route."""

        async def read(response: aiohttp.ClientResponse) -> Any:
            body = await _whole(response)
            if body is None:
                raise TooMuchError(f"more than {MAX_ONE // 1024} KiB")
            return _json(body)

        return await self._answer(_Request(path, needs, read))

    async def get_list(self, path: str, *, needs: str, take: Callable[[Mapping[str, Any]], T]) -> list[T] | None:
        """The results of `take` for each object of the response's list, or None. It is parsed while it arrives."""
        found: list[T] | None = await self._answer(_Request(path, needs, partial(_objects, take=take)))
        return found

    async def delete(self, path: str, *, needs: str) -> None:
        """Returns once there is no such object, whoever deleted it."""
        await self._answer(_Request(path, needs, method=DELETE))

    async def write(self, method: str, path: str, content: Mapping[str, Any], *, needs: str) -> None:
        """Returns once the broker has what is sent, which it may have had already. Raises NotTakenError. Where the
        answer is lost it is sent again, so it has to be what can be repeated."""
        await self._answer(_Request(path, needs, method=method, content=json.dumps(content).encode()))

    async def _answer(self, request: _Request) -> Any:
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._timeout
        again = AsyncRetrying(
            retry=retry_if_exception_type(PassingError),
            stop=stop_after_attempt(ATTEMPTS) | stop_before_delay(self._timeout),
            wait=wait_random_exponential(FIRST_WAIT, LONGEST_WAIT),
            reraise=True,
        )
        async for attempt in again:
            with attempt:
                is_first = attempt.retry_state.attempt_number == 1
                return await self._first(request, None if is_first else ends)
        raise AssertionError("the last attempt answers or raises")

    async def _first(self, request: _Request, ends: float | None) -> Any:
        """The first answer; each address has all of the time-out, or, where that `ends`, what is left of it."""
        failures: list[BrokerError] = []
        for url in tuple(self._urls):
            where = f"{self._where} {url.safe}"
            within = self._timeout if ends is None else ends - asyncio.get_running_loop().time()
            if within <= 0:
                failures.append(PassingError(f"no answer within {self._timeout:g} s", where=where))
                break
            try:
                answer = await self._ask(url, where, request, within)
            except (TooLargeError, NotTakenError):
                raise  # the others would respond the same
            except BrokerError as error:
                failures.append(error)
                if url.tls is not None:
                    self._contexts.pop(url.tls, None)  # its files may have been renewed
            else:
                self._urls.remove(url)
                self._urls.insert(0, url)
                return answer
        raise joined(failures, PassingError, TransientError, PermanentError)

    async def _ask(self, url: HttpUrl, where: str, request: _Request, within: float) -> Any:
        try:
            return await self._exchange(url, where, request, within)
        # Neither is chained: such an error holds the request's headers, and so the password.
        except aiohttp.ClientPayloadError:
            raise PassingError(f"the response was cut short: {NOT_RABBITMQ}", where=where) from None
        except aiohttp.ClientResponseError:
            raise TransientError(f"the server doesn't speak HTTP: {NOT_RABBITMQ}", where=where) from None
        except (aiohttp.ClientError, OSError) as error:
            is_hang_up = _is_hang_up(error)
            if url.tls is not None and is_hang_up:
                explained = hung_up(url.tls, where=where)
            else:
                explained = explain(error, where=where, seconds=within)
            if is_hang_up or isinstance(error, TimeoutError):
                explained = PassingError(explained.what, where=where)
            raise explained from error
        except TooMuchError as error:
            raise TooLargeError(f"{request.route}: the response has {error}: {_TOO_LARGE}", where=where) from error
        except ShapeError as error:
            message = f"{request.route}: an object of the response {error}: {NOT_RABBITMQ}"
            raise PermanentError(message, where=where) from error
        except NotAListError as error:
            message = f"{request.route}: the response can't be read ({error}): {NOT_RABBITMQ}"
            raise PermanentError(message, where=where) from error

    async def _exchange(self, url: HttpUrl, where: str, request: _Request, within: float) -> Any:
        if self._session is None:
            raise RuntimeError("the client is used outside its `async with`")
        async with self._session.request(
            request.method,
            URL(f"{url.safe}/api/{request.path}", encoded=True),
            data=request.content,
            # No Accept: with one, RabbitMQ answers a missing route with 406.
            headers={"Authorization": _basic(url), "Accept-Encoding": "identity", **request.headers},
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=within, sock_connect=min(within, _CONNECT_WITHIN)),
            ssl=await self._context(url, where),
            server_hostname=None if url.tls is None else server_name(url.tls, url.host.strip("[]")) or None,
        ) as response:
            self.date = response.headers.get("Date")
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise PermanentError(f"the response is compressed, although not requested: {NOT_RABBITMQ}", where=where)
            if request.changes and response.status in _DONE:
                return None
            is_json = response.content_type == "application/json"
            if response.status == 200 and is_json and request.read is not None:
                answer = await request.read(response)
                if answer is not None:
                    return answer
            body = await _whole(response) or b""  # to its end: it may be cut short
            refusal = _json(body) if is_json else None
            self._refuse(url, where, response=response, answer=refusal, request=request)
            return None

    async def _context(self, url: HttpUrl, where: str) -> ssl.SSLContext | bool:
        if url.tls is None:
            return True
        found = self._contexts.get(url.tls)
        if found is None:
            found = self._contexts[url.tls] = await tls_context(url.tls, where=where)
        return found

    def _refuse(
        self, url: HttpUrl, where: str, *, response: aiohttp.ClientResponse, answer: Any, request: _Request
    ) -> None:
        """Raises, unless RabbitMQ responded that there is no such object or route to read or to delete."""
        status = response.status
        reason = _shown(str(answer.get("reason", "")), url) if isinstance(answer, dict) else ""
        if reason and request.content is not None and status in {400, 404}:
            raise NotTakenError(reason, where=where, doing=f"{request.route} ({status})")
        if status == 404 and reason:
            return
        if status in {401, 403}:
            refused, what, advice = self._refusal(url.user, reason, request.needs)
            raise PermanentError(f"{what} ({status}): {advice}", where=where, facts=Failure(refused, user=url.user))
        if status >= 500 or status == 429:
            why = f"{status}: {reason}" if reason else str(status)
            failure = PassingError if status in _GATEWAY_FAILED else TransientError
            raise failure(f"the HTTP API fails ({why}): see the broker's log", where=where)
        if 300 <= status < 400:
            raise PermanentError(
                f"redirects elsewhere ({status}): give the final address in {self._setting}", where=where
            )
        kind = _shown(response.content_type, url)
        raise PermanentError(f"unexpected response ({status}, {kind}): {NOT_RABBITMQ}", where=where)

    def _refusal(self, user: str, reason: str, needs: str) -> tuple[FailureKind, str, str]:
        """RabbitMQ responds 401 both to a wrong password and to a missing permission; its reason distinguishes them."""
        if reason == _NO_TAG:
            what, advice = f"user {user!r} may not use the HTTP API", "it needs the tags policymaker and monitoring"
            return FailureKind.PERMISSION, what, advice
        if reason == _ONLY_LOCAL:
            what, advice = f"user {user!r} may log in only from the broker's own host", "use another user"
            return FailureKind.LOGIN, what, advice
        if not reason or reason in _LOGIN_FAILED:
            what, advice = f"login refused for user {user!r}", f"check user and password in {self._setting}"
            return FailureKind.LOGIN, what, advice
        return FailureKind.PERMISSION, f"refused for user {user!r}", f"it needs {needs}"


def _shown(text: str, url: HttpUrl) -> str:
    """A server's own text, safe to quote in a message."""
    found = redacted(text[:_MOST_TEXT], url.password, user=url.user)  # before blanks, which it may contain, are joined
    return " ".join(found.split())[:_MAX_TEXT]


def _basic(url: HttpUrl) -> str:
    return "Basic " + base64.b64encode(f"{url.user}:{url.password.reveal()}".encode()).decode()


async def _whole(response: aiohttp.ClientResponse) -> bytes | None:
    """The body, or None if it is larger than allowed for anything but a list."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > MAX_ONE:
            return None
    return bytes(body)


async def _objects(response: aiohttp.ClientResponse, take: Callable[[Mapping[str, Any]], T]) -> list[T]:
    found: list[T] = []
    reader, size = ListReader(), 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > MAX_LIST:
            raise TooMuchError(f"more than {MAX_LIST // 1024 // 1024} MiB")
        for start in range(0, len(piece), STEP):
            found += [take(each) for each in reader.feed(piece[start : start + STEP])]
            await asyncio.sleep(0)
    found += [take(each) for each in reader.feed(b"", final=True)]
    return found


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _is_hang_up(error: aiohttp.ClientError | OSError) -> bool:
    reset = isinstance(error, OSError) and error.errno in {errno.ECONNRESET, errno.EPIPE}
    return reset or isinstance(error, aiohttp.ServerDisconnectedError)
