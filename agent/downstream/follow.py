"""Follows bindings with the broker's events, separate from all else: very many of them delay no policy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from typing import Final

import structlog

from agent.amqp.broker_events import BINDING_EVENTS, BrokerEvent
from agent.definitions.sources.downstream_state import binding_of_event
from agent.downstream.known_bindings import BindingChange, Federated
from agent.downstream.listen import Listener, SaidAlreadyError
from agent.errors import AgentError
from agent.tasks import run_until_first

LISTEN_AGAIN: Final = 5.0
READ_AGAIN: Final = 1.0
MOST_CHANGES: Final = 100
GONE: Final = "binding.deleted"
ASK_AGAIN: Final = 60.0  # without events, how often to try again

log = structlog.get_logger()


class BindingFollower:
    """Applies changes of bindings, or reads bindings again, as soon as an event reports a change. `sources` are the
    exchanges that matter now, in any of its sets: there may be thousands, and an event is about one. A few changes that
    events describe completely are applied directly: an exchange may have very many bindings. Otherwise the bindings are
    read; reads never overlap, and each is followed by a pause of the same length.
    """

    def __init__(
        self,
        *,
        listener: Listener,
        sources: Callable[[], Iterable[Set[Federated]]],
        change: Callable[[Sequence[BindingChange]], None],
        read: Callable[[frozenset[Federated]], Awaitable[None]],
    ) -> None:
        self._listener = listener
        self._sources = sources
        self._change = change
        self._read = read
        self._changes: list[BindingChange] = []
        self._changed: set[Federated] = set()
        self._wake = asyncio.Event()
        self._has_changes = asyncio.Event()

    async def run(self) -> None:
        """Follow bindings until cancelled. It may be called again after an error: what was not put in force then is
        read again."""
        await run_until_first(self._read_when_changed(), self._apply_changes(), self._listen())

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
                await asyncio.sleep(ASK_AGAIN)
            except SaidAlreadyError:
                await asyncio.sleep(LISTEN_AGAIN)

    async def _hear(self) -> None:
        """Apply events; returns if the broker sends none."""
        async with self._listener.events(BINDING_EVENTS) as events:
            if events is None:
                return
            self._mark(frozenset[Federated]().union(*self._sources()))  # for changes while not subscribed
            async for event in events:
                self._note(event)

    def _note(self, event: BrokerEvent) -> None:
        source = _source(event)
        concerned = {source} if any(source in each for each in self._sources()) else frozenset[Federated]()
        binding = binding_of_event(event.fields)
        if binding is None or concerned & self._changed:
            self._mark(concerned)
        elif concerned:
            self._changes += [BindingChange(source, binding, is_gone=event.name == GONE) for source in concerned]
            self._has_changes.set()

    async def _apply_changes(self) -> None:
        """Apply changes in the order of events; with very many the bindings are read instead, since only the final
        state matters."""
        while True:
            await self._has_changes.wait()
            self._has_changes.clear()
            changes, self._changes = self._changes, []
            if len(changes) > MOST_CHANGES:
                self._mark(frozenset(change.source for change in changes))
            else:
                self._change(changes)

    def _mark(self, changed: Set[Federated]) -> None:
        if changed:
            self._changed |= changed
            self._wake.set()

    async def _read_when_changed(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            changed, self._changed = frozenset(self._changed), set()
            begun = loop.time()
            unread: frozenset[Federated] = frozenset()
            try:
                await self._read(changed)
            except AgentError as error:  # the poll reports the error
                log.debug("bindings not read", error=str(error))
                unread = changed
                await asyncio.sleep(READ_AGAIN)
            await asyncio.sleep(loop.time() - begun)
            self._mark(unread)  # only now: of what is marked, no change is put in force before it is read


def _source(event: BrokerEvent) -> Federated:
    return str(event.fields.get("vhost")), str(event.fields.get("source_name"))
