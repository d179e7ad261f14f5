"""This agent in short, `/api/summary`, and with the agents in `agent.peers`: `/api/fleet`.

The agent asks its peers, not the browser: so the page speaks to one address, tokens of other agents stay here, and
nothing has to be allowed for other sites. Each is asked when somebody looks, with a deadline for a bounded answer, and
at most every few seconds.

Why: docs/decisions/0055-peers-asked-by-agent.md
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from heapq import nsmallest
from types import UnionType
from typing import Annotated, Any, Final, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

import aiohttp

from agent.core.addresses.uri import HttpUrl
from agent.core.links.lifecycle import Level, Status
from agent.core.status.causes import causes_of, level_of, verdict
from agent.core.text import rfc3339
from agent.errors import AgentError
from agent.look_up import Resolver
from agent.network import server_name, tls_context
from agent.slices import in_slices
from agent.status.board import Board
from agent.status.causes import facts
from agent.status.entry import BoardEntry
from agent.status.json_schema import Count, Seconds, Time
from agent.status.views import LinksByStatus

MOST_EDGES: Final = 500
PATIENCE: Final = 3.0
FRESH: Final = 4.0  # seconds; the same answer is given to all who ask meanwhile
MOST_BYTES: Final = 256 * 1024
PATH: Final = "/api/summary"
LONGEST: Final = 1_000  # characters of a text
MOST: Final = 10**15  # of any number
_HOW: Final = "write its token into the URL: http://agent:TOKEN@HOST:PORT"
_NOT_OURS: Final = "answers, but not as an agent of this release does"

PresentLinks = Annotated[LinksByStatus, "Links by status; of those that there are."]


class EdgeView(TypedDict):
    upstream: str
    destination: str | None  # none of an earlier release: its cluster
    is_known: Annotated[bool, "Whether its cluster was reached."]
    links: PresentLinks
    rate: Seconds
    waiting: Count
    is_exact: bool
    oldest_unconfirmed_seconds: Seconds


class AgentSummary(TypedDict):
    agent: str
    group: str
    cluster: str | None
    version: str
    ready: bool
    unread: str | None
    now: str
    level: Level
    verdict: str
    links: PresentLinks
    edges: list[EdgeView]
    edges_left_out: Count


class AgentView(TypedDict):
    url: Annotated[str | None, "Of a peer, without its token; null for this agent."]
    summary: Annotated[AgentSummary | None, "The last one that came."]
    at: Annotated[Time | None, "When it came."]
    error: Annotated[str | None, "Why there is none of this moment."]


class FleetView(TypedDict):
    agents: list[AgentView]


async def summary(board: Board) -> AgentSummary:
    """This agent in short."""
    now = board.clock()
    edges: dict[tuple[str, str], EdgeView] = {}
    links = []
    async for entry in in_slices(board):
        links.append(facts(board, entry, now))
        if entry.gauges().runs_here:
            _add(edges, board, entry, now)
    links += board.deleted()
    causes = causes_of(links, downstream=board.downstream_name)
    most = nsmallest(MOST_EDGES, edges.items(), key=lambda pair: (-sum(pair[1]["links"].values()), pair[0]))
    return {
        "agent": board.owner,
        "group": board.group,
        "cluster": board.cluster,
        "version": board.version,
        "ready": board.ready,
        "unread": board.unread or None,
        "now": rfc3339(now),
        "level": level_of(links),
        "verdict": verdict(causes, links, now=now),
        "links": dict(Counter[str](link.status for link in links)),
        "edges": [edge | {"rate": round(edge["rate"], 2)} for _, edge in most],
        "edges_left_out": max(0, len(edges) - MOST_EDGES),
    }


def _add(edges: dict[tuple[str, str], EdgeView], board: Board, entry: BoardEntry, now: float) -> None:
    """Adds a link to those from its cluster to that where its messages go."""
    gauges, status = entry.gauges(), entry.state.status
    source, destination = board.source_of(entry.link, gauges), board.destination_of(entry.link, gauges)
    new: EdgeView = {
        "upstream": source.name,
        "destination": destination.name,
        "is_known": False,
        "links": {},
        "rate": 0.0,
        "waiting": 0,
        "is_exact": True,
        "oldest_unconfirmed_seconds": 0.0,
    }
    edge = edges.setdefault((source.name, destination.name), new)
    edge["is_known"] |= source.is_known
    edge["links"][status] = edge["links"].get(status, 0) + 1
    edge["rate"] += entry.rate(now)
    edge["waiting"] += (entry.backlog_last or 0) if gauges.backlog is None else gauges.backlog
    edge["is_exact"] &= gauges.backlog is not None and gauges.backlog_is_exact
    oldest = round(gauges.oldest_unconfirmed, 3)
    edge["oldest_unconfirmed_seconds"] = max(edge["oldest_unconfirmed_seconds"], oldest)


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """The last summary of a peer, and when it came; `error` is why there is no later one."""

    summary: AgentSummary | None = None
    at: float | None = None
    error: str = ""


class Peers:
    def __init__(self, board: Board, urls: Callable[[], tuple[HttpUrl, ...]], *, patience: float = PATIENCE) -> None:
        """`patience` is the number of seconds in which a peer has to answer."""
        self._board = board
        self._urls = urls
        self._patience = patience
        self._answers: dict[HttpUrl, PeerAnswer] = {}
        self._asked_at = float("-inf")
        self._asked: set[HttpUrl] = set()
        self._contexts: dict[HttpUrl, ssl.SSLContext] = {}
        self._asking = asyncio.Lock()

    async def fleet(self) -> FleetView:
        """This agent first, then its peers in the order of the configuration."""
        urls = self._urls()
        async with self._asking:
            if self._board.monotonic() - self._asked_at > FRESH or set(urls) != self._asked:
                # Before they answer: who asks may go away meanwhile, and ask again.
                self._asked_at, self._asked = self._board.monotonic(), set(urls)
                await self._ask_all(urls)
        own = PeerAnswer(await summary(self._board), self._board.clock())
        none_yet = PeerAnswer(error="hasn't answered yet")
        known = [(None, own), *((url, self._answers.get(url, none_yet)) for url in urls)]
        return {"agents": [_agent_view(url, answer) for url, answer in _each_once(known)]}

    async def _ask_all(self, urls: tuple[HttpUrl, ...]) -> None:
        timeout = aiohttp.ClientTimeout(total=self._patience)
        connector = aiohttp.TCPConnector(resolver=Resolver())
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            found = await asyncio.gather(*(self._ask(session, url) for url in urls))
        self._answers = dict(zip(urls, found, strict=True))
        self._contexts = {url: context for url, context in self._contexts.items() if url in self._asked}

    async def _ask(self, session: aiohttp.ClientSession, url: HttpUrl) -> PeerAnswer:
        before = self._answers.get(url, PeerAnswer())
        try:
            async with asyncio.timeout(self._patience):
                found = await _summary_of(session, url, await self._context(url))
                return PeerAnswer(found, self._board.clock())
        except TimeoutError:
            error = f"no answer within {self._patience:g} s; check that the agent runs and that this one can reach it"
        except UnusableAnswerError as problem:
            error = str(problem)
        except aiohttp.ClientError as problem:
            self._contexts.pop(url, None)  # its files may have been renewed
            error = f"can't be reached: {_why(problem)}; check the address and that the agent runs"
        except (AgentError, OSError) as problem:
            error = f"can't be reached: {problem}"
        return PeerAnswer(before.summary, before.at, error)

    async def _context(self, url: HttpUrl) -> ssl.SSLContext | bool:
        """The TLS context for a peer, True if its URL has no TLS settings. It is kept: reading certificates takes
        longer than asking."""
        if url.tls is None:
            return True
        if url not in self._contexts:
            self._contexts[url] = await tls_context(url.tls, where=f"agent.peers {url.safe}")
        return self._contexts[url]


def _each_once(known: Sequence[tuple[HttpUrl | None, PeerAnswer]]) -> Iterator[tuple[HttpUrl | None, PeerAnswer]]:
    """An agent may be in its own list, or there under two addresses: its links count once."""
    seen: set[tuple[object, ...]] = set()
    for url, answer in known:
        summary = answer.summary
        who = () if summary is None else (summary["agent"], summary["group"], summary["cluster"])
        if summary is not None and who in seen:
            error = f"is the agent {summary['agent']}, which is shown already: remove it from agent.peers"
            yield url, PeerAnswer(None, answer.at, error)
        else:
            seen.add(who)
            yield url, answer


async def _summary_of(session: aiohttp.ClientSession, url: HttpUrl, context: ssl.SSLContext | bool) -> AgentSummary:
    token = url.password.reveal()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    name = None if url.tls is None else server_name(url.tls, url.host.strip("[]")) or None
    async with session.get(
        url.safe + PATH, headers=headers, allow_redirects=False, ssl=context, server_hostname=name
    ) as response:
        if response.status == 401:
            raise UnusableAnswerError(f"refuses access; {_HOW}" if not token else "refuses the token in agent.peers")
        if response.status == 404:
            raise UnusableAnswerError("has no such route: it is an agent of an older release, or no agent at all")
        if response.status != 200:
            raise UnusableAnswerError(f"answers with status {response.status}; its log may show why")
        return checked(_decoded(await _bounded(response)))


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
            raise UnusableAnswerError(
                f"answers with more than {MOST_BYTES // 1024} KiB: is this the address of an agent?"
            )
    return bytes(found)


def _decoded(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UnusableAnswerError("doesn't answer with JSON: is this the address of an agent?") from None


def _agent_view(url: HttpUrl | None, answer: PeerAnswer) -> AgentView:
    return {
        "url": None if url is None else url.safe,
        "summary": answer.summary,
        "at": None if answer.at is None else rfc3339(answer.at),
        "error": answer.error or None,
    }


class UnusableAnswerError(Exception):
    """A peer's answer that can't be shown."""


def checked(found: Any) -> AgentSummary:
    """The summary of another agent, which may be anything: only what is known and bounded is passed on."""
    summary: AgentSummary = _checked(found, AgentSummary)
    summary["edges_left_out"] += max(0, len(found["edges"]) - MOST_EDGES)
    return summary


_hints_of: Final = cache(partial(get_type_hints, include_extras=True))


def _checked(found: Any, of: Any) -> Any:
    """The value as that type. States that a later release may have are left out."""
    origin, arguments = get_origin(of), get_args(of)
    if origin is Annotated:
        return _checked(found, arguments[0])
    if origin is UnionType:
        return None if found is None else _checked(found, arguments[0])
    match found:
        case _ if of is bool:
            return found is True
        case str() if of is str or (of is Level and found in set(Level)):
            return of(found[:LONGEST])
        case int() | float() if of in {int, float} and not isinstance(found, bool) and 0 <= found <= MOST:
            return int(found) if of is int else found
        case list() if origin is list:
            return [_checked(each, arguments[0]) for each in found[:MOST_EDGES]]
        case dict() if origin is dict:
            return {str(status): _checked(found[status], int) for status in Status if status in found}
        case dict() if is_typeddict(of):
            return {name: _checked(found.get(name), hint) for name, hint in _hints_of(of).items()}
    raise UnusableAnswerError(_NOT_OURS)
