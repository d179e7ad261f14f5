"""Subscribes to the events of the downstream's whole cluster; all subscribers share one connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import structlog

from agent.amqp.broker_events import BrokerEvent, EventReader, subscribe
from agent.amqp.connect import connect_any
from agent.amqp.connection_pool import Pool, Shared
from agent.core.addresses.uri import AmqpUri
from agent.core.model import DEFAULT_VHOST
from agent.downstream.reading import WHERE
from agent.errors import AgentError, BrokerError
from agent.tasks import GuardedTasks, UnexpectedErrors

NAME: Final = "federation-agent: listening to events"
LISTEN_AGAIN: Final = 5.0
ASK_AGAIN: Final = 60.0  # where a broker reports nothing, whether it does now

log = structlog.get_logger()


class LoggedAlreadyError(AgentError):
    """The error was already logged."""


class Listener:
    """`uris` is called again each time; the event exchange is in vhost `/`, whichever vhost the URIs name."""

    def __init__(self, uris: Callable[[], Sequence[AmqpUri]], errors: UnexpectedErrors | None = None) -> None:
        self._uris = uris
        self._pool = Pool(errors=errors)
        self._silence = ""
        self._heard: set[Shared] = set()

    @asynccontextmanager
    async def events(self, keys: Sequence[str]) -> AsyncIterator[AsyncIterator[BrokerEvent] | None]:
        """The events with these keys, or None if the broker sends none; the reason is logged once. Raises
        LoggedAlreadyError when they end.
        """
        uris = _where_events_are(self._uris())
        try:
            shared = await self._pool.acquire(uris, lambda: connect_any(uris, where=WHERE, name=NAME))
            self._heard.add(shared)
            try:
                found = await subscribe(shared.connection, keys)
                if isinstance(found, EventReader):
                    self._say("")
                    async with found:
                        yield aiter(found)
                else:
                    self._say(found.reason)
                    yield None
            finally:
                self._heard.discard(shared)
                await shared.release()
        except BrokerError as error:
            self._say(str(error))
            raise LoggedAlreadyError(str(error)) from error

    async def leave(self) -> None:
        """End the subscriptions, because the addresses have changed."""
        for shared in tuple(self._heard):
            await shared.connection.close()

    def renew(self, former: Sequence[AmqpUri], now: Sequence[AmqpUri], tasks: GuardedTasks) -> None:
        """Use other passwords for the same addresses: the subscriptions go on."""
        before, after = _where_events_are(former), _where_events_are(now)
        successors = dict(zip(before, after, strict=True))
        for _, connection in self._pool.rekey(lambda key: after if key == before else key):
            connection.renew(successors.get(connection.uri, connection.uri), tasks)

    def _say(self, silence: str) -> None:
        if silence == self._silence:
            return
        if silence:
            log.warning("no broker events, polling for changes", reason=silence)
        else:
            log.info("broker events received again")
        self._silence = silence


def _where_events_are(uris: Sequence[AmqpUri]) -> tuple[AmqpUri, ...]:
    return tuple(uri.in_vhost(DEFAULT_VHOST) for uri in uris)


async def follow(
    listener: Listener,
    keys: Sequence[str],
    take: Callable[[BrokerEvent], None],
    *,
    on_begin: Callable[[], None],
    on_end: Callable[[], None] = lambda: None,
) -> None:
    """Pass events to `take` until cancelled. What changes before `on_begin` or after `on_end` may go unreported."""
    while True:
        try:
            async with listener.events(keys) as events:
                if events is not None:
                    on_begin()
                    async for event in events:
                        take(event)
            await asyncio.sleep(ASK_AGAIN)
        except LoggedAlreadyError:
            await asyncio.sleep(LISTEN_AGAIN)
        finally:
            on_end()
