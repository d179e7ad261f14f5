"""Other agents, asked for their summaries when somebody looks: `/api/fleet`.

The agent asks them, not the browser: so the page speaks to one address, tokens of other agents stay here, and nothing
has to be allowed for other sites. Each is asked with a deadline for a bounded answer, and at most every few seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from agent.core.addresses.http_url import HttpUrl
from agent.core.text.quantities import rfc3339
from agent.errors import AgentError
from agent.look_up import Resolver
from agent.network import server_name, tls_context
from agent.status.board import Board
from agent.status.fleet import summary
from agent.status.peer_summary import UnusableError, checked

PATIENCE: Final = 3.0
FRESH: Final = 4.0  # seconds; the same answer is given to all who ask meanwhile
MOST_BYTES: Final = 256 * 1024
PATH: Final = "/api/summary"
_HOW: Final = "write its token into the URL: http://agent:TOKEN@HOST:PORT"


@dataclass(frozen=True, slots=True)
class Heard:
    """The last summary of a peer, and when it came; `error` is why there is no later one."""

    summary: dict[str, Any] | None = None
    at: float | None = None
    error: str = ""


_NOT_YET: Final = Heard(error="hasn't answered yet")


class Peers:
    def __init__(self, board: Board, urls: Callable[[], tuple[HttpUrl, ...]], *, patience: float = PATIENCE) -> None:
        """Each peer has so many seconds to answer."""
        self._board = board
        self._urls = urls
        self._patience = patience
        self._heard: dict[HttpUrl, Heard] = {}
        self._asked_at = float("-inf")
        self._asked: set[HttpUrl] = set()
        self._contexts: dict[HttpUrl, ssl.SSLContext] = {}
        self._asking = asyncio.Lock()

    async def fleet(self) -> dict[str, Any]:
        """This agent first, then its peers in the order of the configuration."""
        urls = self._urls()
        async with self._asking:
            if self._board.monotonic() - self._asked_at > FRESH or set(urls) != self._asked:
                # Before they answer: who asks may go away meanwhile, and ask again.
                self._asked_at, self._asked = self._board.monotonic(), set(urls)
                await self._ask_all(urls)
        own = Heard(await summary(self._board), self._board.clock())
        known = [(None, own), *((url, self._heard.get(url, _NOT_YET)) for url in urls)]
        return {"agents": [_view(url, heard) for url, heard in _each_once(known)]}

    async def _ask_all(self, urls: tuple[HttpUrl, ...]) -> None:
        timeout = aiohttp.ClientTimeout(total=self._patience)
        connector = aiohttp.TCPConnector(resolver=Resolver())
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            found = await asyncio.gather(*(self._ask(session, url) for url in urls))
        self._heard = dict(zip(urls, found, strict=True))
        self._contexts = {url: context for url, context in self._contexts.items() if url in self._asked}

    async def _ask(self, session: aiohttp.ClientSession, url: HttpUrl) -> Heard:
        before = self._heard.get(url, Heard())
        try:
            async with asyncio.timeout(self._patience):
                found = await _summary_of(session, url, await self._context(url))
                return Heard(found, self._board.clock())
        except TimeoutError:
            error = f"no answer within {self._patience:g} s; check that the agent runs and that this one can reach it"
        except UnusableError as problem:
            error = str(problem)
        except aiohttp.ClientError as problem:
            self._contexts.pop(url, None)  # its files may have been renewed
            error = f"can't be reached: {_why(problem)}; check the address and that the agent runs"
        except (AgentError, OSError) as problem:
            error = f"can't be reached: {problem}"
        return Heard(before.summary, before.at, error)

    async def _context(self, url: HttpUrl) -> ssl.SSLContext | bool:
        """Reading certificates takes longer than asking."""
        if url.tls is None:
            return True
        if url not in self._contexts:
            self._contexts[url] = await tls_context(url.tls, where=f"agent.peers {url.safe}")
        return self._contexts[url]


def _each_once(known: Sequence[tuple[HttpUrl | None, Heard]]) -> Iterator[tuple[HttpUrl | None, Heard]]:
    """An agent may be in its own list, or there under two addresses: its links count once."""
    seen: set[tuple[object, ...]] = set()
    for url, heard in known:
        who = tuple((heard.summary or {}).get(key) for key in ("agent", "group", "cluster"))
        if heard.summary is not None and who in seen:
            yield (
                url,
                Heard(None, heard.at, f"is the agent {who[0]}, which is shown already: remove it from agent.peers"),
            )
        else:
            seen.add(who)
            yield url, heard


async def _summary_of(session: aiohttp.ClientSession, url: HttpUrl, context: ssl.SSLContext | bool) -> dict[str, Any]:
    token = url.password.reveal()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    name = None if url.tls is None else server_name(url.tls, url.host.strip("[]")) or None
    async with session.get(
        url.safe + PATH, headers=headers, allow_redirects=False, ssl=context, server_hostname=name
    ) as answer:
        if answer.status == 401:
            raise UnusableError(f"refuses access; {_HOW}" if not token else "refuses the token in agent.peers")
        if answer.status == 404:
            raise UnusableError("has no such route: it is an agent of an older release, or no agent at all")
        if answer.status != 200:
            raise UnusableError(f"answers with status {answer.status}; its log may show why")
        return checked(_decoded(await _bounded(answer)))


def _why(problem: aiohttp.ClientError) -> str:
    match problem:
        case aiohttp.ClientConnectorCertificateError():
            return f"its certificate is refused: {problem.certificate_error}"
        case aiohttp.ClientConnectorError():
            number = problem.errno or 0  # negative where a name can't be resolved
            return os.strerror(number) if number > 0 else str(problem.strerror)
        case _:
            return str(problem) or problem.__class__.__name__


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    found = bytearray()
    async for piece in answer.content.iter_chunked(16 * 1024):
        found += piece
        if len(found) > MOST_BYTES:
            raise UnusableError(f"answers with more than {MOST_BYTES // 1024} KiB: is this the address of an agent?")
    return bytes(found)


def _decoded(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UnusableError("doesn't answer with JSON: is this the address of an agent?") from None


def _view(url: HttpUrl | None, heard: Heard) -> dict[str, Any]:
    return {
        "url": None if url is None else url.safe,
        "summary": heard.summary,
        "at": None if heard.at is None else rfc3339(heard.at),
        "error": heard.error or None,
    }
