"""The routes of the HTTP API: reading one board, its changes as server-sent events, and actions on links."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from aiohttp import web

from agent.core.fields import to_tagged
from agent.core.links.lifecycle import Pause, Status
from agent.core.model import LinkKind
from agent.core.settings import Histograms
from agent.core.status.acknowledgements import LONGEST, Acknowledgement, acknowledged
from agent.core.status.causes import blamed
from agent.errors import BrokerError
from agent.slices import in_slices
from agent.status import causes, fleet, metrics, native
from agent.status.board import Board
from agent.status.changes import Feed, transition_view
from agent.status.entry import BoardEntry
from agent.status.fleet import Peers
from agent.status.history import Range
from agent.status.http.connections import ClientConnections
from agent.status.http.openapi import document
from agent.status.http.responses import (
    answer,
    answer_list,
    answer_text,
    compact,
    compact_list,
    form_of,
    refuse,
    scraped,
)
from agent.status.standby import standby_view
from agent.status.views import history_view, link_view, overview, sample_view

ACTIONS: Final = ("restart", "pause", "resume")
Views = Callable[[Board, Iterable[BoardEntry]], AsyncIterator[dict[str, Any]]]
MOST_DIGITS: Final = 15
HEARTBEAT: Final = 15.0
GATHER: Final = 0.1  # changes within this time are sent together
MOST_READERS: Final = 64
TRY_AGAIN: Final = b"retry: 2000\n\n"
STILL_HERE: Final = b": still here\n\n"
EVENT_HEADERS: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
REMOVING: Final = "the link is no longer defined and is being removed: define it again to keep it"


class LinkActions(Protocol):
    """Actions on links, which the supervisor carries out."""

    def act(self, link_id: str, action: str, /) -> None:
        """Restart or resume a link."""

    def pause(self, link_id: str, pause: Pause, /) -> None:
        """Pause a link."""

    def acknowledge(self, links: Mapping[str, Acknowledgement | None], /) -> None:
        """Acknowledge the trouble of links, by id; None takes that back."""

    async def delete_shovel(self, vhost: str, name: str, /) -> str | None:
        """Delete the definition of a shovel. Returns the reason where it can't be deleted; raises BrokerError where the
        broker fails or refuses it."""


class NotFound(web.HTTPException):
    """No object has that name; `web.HTTPNotFound` means that there is no such path."""

    status_code = 404


class HttpApi:
    def __init__(
        self,
        board: Board,
        actions: LinkActions,
        connections: ClientConnections,
        peers: Peers,
        histograms: Histograms = Histograms.LINK,
    ) -> None:
        self._board = board
        self._actions = actions
        self._connections = connections
        self._peers = peers
        self._histograms = histograms

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/livez", self._live),
            web.get("/readyz", self._ready),
            web.get("/metrics", self._scrape),
            web.get("/api/overview", self._overview),
            web.get("/api/causes", self._causes),
            web.post("/api/causes/{id}/ack", self._ack),
            web.delete("/api/causes/{id}/ack", self._ack),
            web.get("/api/summary", self._summary),
            web.get("/api/fleet", self._fleet),
            web.get("/api/standby", self._standby),
            web.get("/api/openapi.json", self._openapi),
            web.get("/api/links", self._links),
            web.get("/api/events", self._events),
            web.get("/api/transitions", self._transitions),
            web.get("/api/links/{id}", self._link),
            web.get("/api/links/{id}/bindings", self._bindings),
            *(web.post(f"/api/links/{{id}}/{action}", self._acting(action)) for action in ACTIONS),
            web.post("/api/links/{id}/forget", self._forget),
            *self._native_routes(),
            *self._native_routes("/"),
        ]

    def _native_routes(self, end: str = "") -> list[web.RouteDef]:
        """The routes of the management extension, which also accepts a slash at the end of each."""
        links, shovels = "/api/federation-links", "/api/shovels"
        return [
            web.get(f"{links}{end}", self._native(native.links)),
            web.get(f"{links}/state/down{end}", self._native(native.links_down)),
            web.get(f"{links}/{{vhost}}{end}", self._native(native.links)),
            web.get(f"{links}/{{vhost}}/state/down{end}", self._native(native.links_down)),
            web.delete(f"{links}/vhost/{{vhost}}/{{id}}/{{node}}/restart{end}", self._native_restart),
            web.get(f"{shovels}{end}", self._native(native.shovels)),
            web.get(f"{shovels}/{{vhost}}{end}", self._native(native.shovels)),
            web.delete(f"{shovels}/vhost/{{vhost}}/{{name}}{end}", self._native_delete_shovel),
            web.delete(f"{shovels}/vhost/{{vhost}}/{{name}}/restart{end}", self._native_restart_of_shovel),
        ]

    async def _live(self, _: web.Request) -> web.Response:
        return answer({"status": "ok"})

    async def _ready(self, _: web.Request) -> web.Response:
        if self._board.ready:
            return answer({"status": "ok"})
        return refuse(503, "the downstream's definitions have not been read yet")

    async def _scrape(self, request: web.Request) -> web.Response:
        form = form_of(request, is_brief=self._histograms is Histograms.UPSTREAM)
        async with self._connections.large_response():
            return await scraped(request, form, await metrics.exposition(self._board, form))

    async def _overview(self, _: web.Request) -> web.Response:
        return answer(overview(self._board))

    async def _causes(self, _: web.Request) -> web.Response:
        async with self._connections.large_response():
            return answer(await causes.summary(self._board))

    async def _ack(self, request: web.Request) -> web.Response:
        """Acknowledge a cause, or take that back. The response is the cause as it is then; null where it has ended
        meanwhile."""
        cause_id, now = request.match_info["id"], self._board.clock()
        given = None if request.method == "DELETE" else await _body_of(request)
        until = None if given is None else _end_of(given, now)
        async with self._connections.large_response():
            links = await causes.links_of(self._board, cause_id)
            if not links:
                raise NotFound(text=f"no cause has the id {cause_id[:64]!r}; GET /api/causes lists them")
            known: dict[str, Acknowledgement | None] = dict.fromkeys(link.id for link in links)
            if given:
                about = {"by": given["by"], "at": now, "reason": given.get("reason"), "until": until}
                known |= {link.id: acknowledged(*blamed(link), **about) for link in links}
            self._actions.acknowledge(known)
            shown = (await causes.summary(self._board))["causes"]
        return answer(next((each for each in shown if each["id"] == cause_id), None))

    async def _summary(self, _: web.Request) -> web.Response:
        async with self._connections.large_response():
            return answer(await fleet.summary(self._board))

    async def _fleet(self, _: web.Request) -> web.Response:
        """The fleet. It waits for peers outside the limit: other large responses don't wait for them."""
        found = await self._peers.fleet()
        async with self._connections.large_response():
            return answer(found)

    async def _standby(self, _: web.Request) -> web.Response:
        async with self._connections.large_response():
            found = standby_view(self._board)
            if found is None:
                raise NotFound(text="no standby is configured: the configuration has no section 'standby'")
            return answer(found)

    async def _openapi(self, _: web.Request) -> web.Response:
        return answer(document(self._board.version))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        return await _stream_events(request, self._board, self._connections)

    async def _transitions(self, request: web.Request) -> web.Response:
        after = request.query.get("after", "0")
        if not (after.isascii() and after.isdigit() and len(after) <= MOST_DIGITS):
            return refuse(400, "after has to be the number of a transition, `seq`")
        async with self._connections.large_response():
            found = in_slices(self._board.transitions.after(int(after)))
            return await answer_list(transition_view(change) async for change in found)

    async def _links(self, request: web.Request) -> web.Response:
        found = self._of_vhost(request.query.get("vhost"))
        async with self._connections.large_response():
            return await answer_list(link_view(self._board, entry) async for entry in in_slices(found))

    async def _link(self, request: web.Request) -> web.Response:
        entry = self._entry(request)
        try:
            span = Range(request.query.get("range", Range.QUARTER))
        except ValueError:
            return refuse(400, f"range has to be one of {', '.join(Range)}")
        advice = await causes.advice_of(self._board, entry)
        return answer(
            {**link_view(self._board, entry), "advice": advice, "history": history_view(self._board, entry, span)}
        )

    async def _bindings(self, request: web.Request) -> web.Response:
        """The link's bindings upstream, which no broker can be asked for over AMQP."""
        entry = self._entry(request)
        known, uris = entry.gauges().known, [str(uri) for uri in entry.link.uris]
        if known is None:
            return answer({"status": entry.state.status, "uris": uris, "known": None})
        found = {
            "cluster": known.site.cluster,
            "vhost": known.site.vhost,
            "queue": known.queue,
            "letter": known.letter,
            "arguments": to_tagged(known.arguments),
            "notices_deletions": known.has_canary,
            "noticing_is_refused": known.canary_is_refused,
        }
        async with self._connections.large_response():
            # Some of them a broker can't bind.
            bindings = await compact_list(
                [each.routing_key, to_tagged(each.arguments), each in known.bound]
                async for each in in_slices((*known.bound, *known.left_out))
            )
        head = compact({"status": entry.state.status, "uris": uris})
        return answer_text(f'{head[:-1]},"known":{compact(found)[:-1]},"bindings":{bindings}}}}}')

    def _acting(self, action: str) -> Callable[[web.Request], Any]:
        async def do(request: web.Request) -> web.Response:
            link_id = self._entry(request).link.id
            if self._board[link_id].state.status is Status.REMOVING:
                return refuse(409, REMOVING)
            if action == "pause":
                about = await _body_of(request)
                self._actions.pause(link_id, Pause.given(about["by"], self._board.clock(), about.get("reason")))
            else:
                self._actions.act(link_id, action)
            return answer(link_view(self._board, self._board[link_id]))

        return do

    async def _forget(self, request: web.Request) -> web.Response:
        link_id = request.match_info["id"]
        if not self._board.forget(link_id):
            raise _no_link(link_id)
        return answer({"id": link_id})

    def _native(self, views: Views) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer_native(request: web.Request) -> web.Response:
            vhost = request.match_info.get("vhost")
            known = self._board.vhosts
            if vhost is not None and known is not None and vhost not in known:
                raise NotFound(
                    text=f"the downstream has no vhost {vhost[:64]!r}, or the agent's user has no access to it"
                )
            async with self._connections.large_response():
                return await answer_list(views(self._board, self._of_vhost(vhost)))

        return answer_native

    async def _native_restart(self, request: web.Request) -> web.Response:
        entry = self._entry(request)
        if entry.link.vhost != request.match_info["vhost"]:
            raise _no_link(entry.link.id)
        if entry.state.status is Status.REMOVING:
            raise NotFound(text=REMOVING)  # the plugin would no longer have such a link
        self._actions.act(entry.link.id, "restart")
        return web.Response(status=204)

    async def _native_restart_of_shovel(self, request: web.Request) -> web.Response:
        self._actions.act(self._shovel(request).link.id, "restart")
        return web.Response(status=204)

    async def _native_delete_shovel(self, request: web.Request) -> web.Response:
        link = self._shovel(request).link
        try:
            refusal = await self._actions.delete_shovel(link.vhost, link.name)
        except BrokerError as error:
            return refuse(503, f"the shovel's parameter can't be deleted: {error}")
        return web.Response(status=204) if refusal is None else refuse(409, refusal)

    def _entry(self, request: web.Request) -> BoardEntry:
        link_id = request.match_info["id"]
        if link_id not in self._board:
            raise _no_link(link_id)
        return self._board[link_id]

    def _shovel(self, request: web.Request) -> BoardEntry:
        vhost, name = request.match_info["vhost"], request.match_info["name"]
        for each in self._of_vhost(vhost):
            if each.link.kind is LinkKind.SHOVEL and each.link.name == name:
                return each
        raise NotFound(text=f"no shovel is called {name[:64]!r} in vhost {vhost[:64]!r}; GET /api/shovels lists them")

    def _of_vhost(self, vhost: str | None) -> Iterator[BoardEntry]:
        return (entry for entry in self._board if vhost is None or entry.link.vhost == vhost)


async def _body_of(request: web.Request) -> Mapping[str, Any]:
    """A body is optional: a JSON object with `reason` and `by`. Without `by` it is the client's address."""
    try:
        given = json.loads(await request.read() or b"{}")
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or any(not isinstance(given.get(key, ""), str) for key in ("by", "reason")):
        raise web.HTTPBadRequest(text='the body has to be a JSON object such as {"reason": "…", "by": "…"}')
    return given | {"by": given.get("by") or f"HTTP from {request.remote}"}


def _end_of(given: Mapping[str, Any], now: float) -> float | None:
    """The end of an acknowledgement: `for` so many seconds, or None for the end of the trouble."""
    seconds = given.get("for")
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= LONGEST:
        raise web.HTTPBadRequest(text=f"`for` has to be a number of seconds above 0, up to {LONGEST:.0f}")
    return now + seconds


def _no_link(link_id: str) -> NotFound:
    return NotFound(text=f"no link has the id {link_id[:64]!r}; GET /api/links lists them")


async def _stream_events(request: web.Request, board: Board, connections: ClientConnections) -> web.StreamResponse:
    """Runs until the agent stops or the connection ends, also because the reader disconnects or reads too slowly."""
    most = min(MOST_READERS, connections.most // 2)
    if board.readers >= most:
        raise web.HTTPServiceUnavailable(text=f"{most} readers have events already; close some first")
    response = web.StreamResponse(headers=EVENT_HEADERS)
    with board.feed() as feed:
        async with connections.large_response():
            links = _event("links", await _list(link_view, board, board))
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        try:
            async for text in _event_texts(board, feed, links):
                await response.write(text)
        except ConnectionError:
            pass  # the reader has disconnected
    return response


async def _event_texts(board: Board, feed: Feed, links: bytes) -> AsyncIterator[bytes]:
    yield TRY_AGAIN
    yield links
    while not feed.ended:
        try:
            async with asyncio.timeout(HEARTBEAT):
                await feed.wait()
        except TimeoutError:
            yield STILL_HERE
            continue
        await asyncio.sleep(GATHER)
        changes = feed.take()
        for link_id in changes.gone:
            yield _event("gone", compact({"id": link_id}))
        async for link_id in in_slices(changes.changed):
            if link_id in board:
                yield _event("link", compact(link_view(board, board[link_id])))
        moved = [board[link_id] for link_id in changes.moved if link_id in board]
        if moved:
            yield _event("samples", await _list(sample_view, board, moved))


async def _list(view: Callable[[Board, BoardEntry], Any], board: Board, entries: Iterable[BoardEntry]) -> str:
    """The list of links in JSON, only of those that still exist when their turn comes."""
    return await compact_list(view(board, entry) async for entry in in_slices(entries) if entry.link.id in board)


def _event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode("ascii")
