"""Checks every few seconds when the certificates and tokens expire that connections depend on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Final

from agent.core.addresses.expiry import Credential, Expiry, Peer, certificate_expiry, token_expiry
from agent.core.addresses.uri import AmqpUri, HttpUrl
from agent.core.model import Link
from agent.core.settings import DownstreamSettings
from agent.errors import Side
from agent.network import read_certificates
from agent.status.board import Board

EVERY: Final = 15.0
TASK: Final = "look at certificates"

Shown = Iterable[tuple[Side, bytes]]
Origin = tuple[Peer, str, str]
"""The owner of a credential: the peer, the vhost and the upstream."""
DOWNSTREAM: Final[Origin] = (Peer.DOWNSTREAM, "", "")
MANAGEMENT: Final[Origin] = (Peer.MANAGEMENT, "", "")


async def watch_expiries(
    downstream: Callable[[], DownstreamSettings],
    shown: Callable[[Link], Shown],
    board: Board,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Check until cancelled; `shown` returns the certificates that the brokers at both ends of a link have shown."""
    while True:
        with board.errors.catching(TASK):
            board.expiries = await _look_once(downstream(), shown, board)
        await sleep(EVERY)


async def _look_once(settings: DownstreamSettings, shown: Callable[[Link], Shown], board: Board) -> tuple[Expiry, ...]:
    links = {(each.link.vhost, each.link.upstream, each.link.uris): each.link for each in board}.values()
    certificates = {(_origin(link, side), der) for link in links for side, der in shown(link)}
    sources: set[tuple[Origin, AmqpUri | HttpUrl]]
    sources = {(_upstream(link), uri) for link in links for uri in link.uris}
    sources |= {(_upstream(link), url) for link in links for url in link.management}
    sources |= {(DOWNSTREAM, uri) for uri in settings.uris} | {(MANAGEMENT, url) for url in settings.management}
    paths = {uri.tls.certfile for _, uri in sources if uri.tls is not None and uri.tls.certfile is not None}
    files = {path: await read_certificates(path) for path in paths}
    return await asyncio.to_thread(_look, certificates, sources, files)


def _upstream(link: Link) -> Origin:
    return Peer.UPSTREAM, link.vhost, link.upstream


def _origin(link: Link, side: Side) -> Origin:
    return _upstream(link) if side is Side.UPSTREAM else DOWNSTREAM


def _look(
    certificates: Iterable[tuple[Origin, bytes]],
    sources: Iterable[tuple[Origin, AmqpUri | HttpUrl]],
    files: Mapping[str, list[bytes]],
) -> tuple[Expiry, ...]:
    ours = (
        (origin, Credential.CLIENT, at)
        for origin, uri in sources
        if uri.tls is not None and uri.tls.certfile is not None
        for der in files[uri.tls.certfile]
        for at in _ends(der)
    )
    tokens = (
        (origin, Credential.JWT, at)
        for origin, uri in sources
        if uri.password is not None and (at := token_expiry(uri.password.reveal())) is not None
    )
    theirs = ((origin, Credential.SERVER, at) for origin, der in certificates for at in _ends(der))
    return tuple(
        Expiry(peer, what, at, vhost=vhost, upstream=upstream)
        for (peer, vhost, upstream), what, at in (*ours, *tokens, *theirs)
    )


def _ends(der: bytes) -> Iterator[float]:
    try:
        yield certificate_expiry(der)
    except ValueError:
        return
