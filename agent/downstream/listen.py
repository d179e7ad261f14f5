"""Listens to the events of the downstream's whole cluster; all who listen share one connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import structlog

from agent.amqp.broker_events import Events, subscribe
from agent.amqp.connect import connect_any
from agent.amqp.connection_pool import Pool, Shared
from agent.core.addresses.uri import AmqpUri
from agent.core.broker_events import BrokerEvent
from agent.downstream.reading import DEFAULT_VHOST, WHERE, in_vhost
from agent.errors import AgentError, BrokerError
from agent.tasks import UnexpectedErrors

NAME: Final = "federation-agent: listening to events"

log = structlog.get_logger()


class SaidAlreadyError(AgentError):
    """What went wrong is in the log already."""


class Listener:
    """`uris` is asked again each time; the event exchange stands in vhost `/`, whichever vhost they name."""

    def __init__(self, uris: Callable[[], Sequence[AmqpUri]], errors: UnexpectedErrors | None = None) -> None:
        self._uris = uris
        self._pool = Pool(errors=errors)
        self._silence = ""
        self._heard: set[Shared] = set()

    @asynccontextmanager
    async def events(self, keys: Sequence[str]) -> AsyncIterator[AsyncIterator[BrokerEvent] | None]:
        """The events with these keys, or None where the broker tells nothing; why so is said once.

        Raises SaidAlreadyError when they end.
        """
        uris = tuple(in_vhost(uri, DEFAULT_VHOST) for uri in self._uris())
        try:
            shared = await self._pool.acquire(uris, lambda: connect_any(uris, where=WHERE, name=NAME))
            self._heard.add(shared)
            try:
                found = await subscribe(shared.connection, keys)
                if isinstance(found, Events):
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
            raise SaidAlreadyError(str(error)) from error

    async def leave(self) -> None:
        """Ends what is listened to: the addresses are others now."""
        for shared in tuple(self._heard):
            await shared.connection.close()

    def _say(self, silence: str) -> None:
        if silence == self._silence:
            return
        if silence:
            log.warning("no broker events, so changes are polled for", reason=silence)
        else:
            log.info("broker events are heard again")
        self._silence = silence
