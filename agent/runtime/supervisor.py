"""Keeps the links that should exist running, and ends those that should not; only what changed is touched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

import structlog

from agent.amqp.connect import connect_any
from agent.amqp.wire import methods
from agent.core import lifecycle
from agent.core.lifecycle import LinkState
from agent.core.model import Binding, Link, LinkKind
from agent.core.resolve import resolve
from agent.definitions.load import Configuration
from agent.definitions.watch import Cause
from agent.errors import AgentError, BrokerError
from agent.runtime.downstream import Reading, read_bindings, read_downstream
from agent.runtime.runner import LinkRunner
from agent.runtime.world import World

STOP_PATIENCE: Final = 15.0
DECLARING: Final = "federation-agent: declaring exchanges"

log = structlog.get_logger()


class Supervisor:
    """One step at a time: read, resolve, compare with what runs, act."""

    def __init__(self, load: Callable[[], Configuration]) -> None:
        self._load = load
        self._runners: dict[str, LinkRunner] = {}
        self._leaving: set[LinkRunner] = set()
        self._world: World | None = None
        self.ready = asyncio.Event()
        self.configuration = load()

    @property
    def runners(self) -> Mapping[str, LinkRunner]:
        return self._runners

    async def reload(self, causes: frozenset[Cause]) -> None:
        """What the watcher calls; an error leaves everything as it is."""
        if causes & {Cause.FILE, Cause.HANGUP}:
            self.configuration = self._load()
        reading = await read_downstream(self.configuration)
        world = self._world_of(reading)
        await self._declare(reading)
        found = resolve(reading.definitions, reading.states)
        wanted = {link.id: link for link in found.links if link.kind is LinkKind.EXCHANGE}
        bindings = await read_bindings(self.configuration, reading, wanted.values())
        self._reconcile(wanted, {key: frozenset(of_key) for key, of_key in bindings.items()}, world)
        self._stand_aside(reading)
        self.ready.set()

    def _world_of(self, reading: Reading) -> World:
        if self._world is None:
            self._world = World(self.configuration.settings.downstream.uris, reading.cluster)
        return self._world

    def _reconcile(
        self, wanted: Mapping[str, Link], bindings: Mapping[tuple[str, str], frozenset[Binding]], world: World
    ) -> None:
        for link_id in self._runners.keys() - wanted.keys():
            self._remove(link_id)
        for link_id, link in wanted.items():
            of_link = bindings.get((link.vhost, link.name), frozenset())
            runner = self._runners.get(link_id)
            if runner is None:
                runner = self._runners[link_id] = LinkRunner(link, of_link, world, on_change=_log_change)
                runner.send(lifecycle.Start())
            elif _differs(runner.link, link):
                runner.redefine(link)
            runner.rebind(of_link)

    def _remove(self, link_id: str) -> None:
        runner = self._runners.pop(link_id)
        self._leaving.add(runner)
        runner.send(lifecycle.Stop(clean_up=True))
        task = asyncio.get_running_loop().create_task(runner.finished.wait())
        task.add_done_callback(lambda _: self._leaving.discard(runner))

    def _stand_aside(self, reading: Reading) -> None:
        for runner in self._runners.values():
            link = runner.link
            native = (link.vhost, link.name, link.upstream) in reading.native_links
            if native:
                runner.send(lifecycle.StandAside("the federation plugin of the downstream runs this link"))
            elif runner.state.standby is not None and "federation plugin" in runner.state.standby:
                runner.send(lifecycle.TakeOver())

    async def _declare(self, reading: Reading) -> None:
        """The exchanges of the configuration, where they don't stand yet."""
        for vhost, found in reading.definitions.vhosts.items():
            standing = reading.states[vhost].exchanges if vhost in reading.states else {}
            missing = [exchange for name, exchange in found.exchanges.items() if name not in standing]
            if not missing:
                continue
            async with await connect_any(
                [replace(uri, path=None) for uri in self.configuration.settings.downstream.uris],
                where="downstream",
                name=DECLARING,
                default_vhost=vhost,
            ) as connection:
                channel = await connection.channel()
                for exchange in missing:
                    await channel.ask(
                        methods.EXCHANGE_DECLARE,
                        methods.EXCHANGE_DECLARE_OK,
                        exchange=exchange.name,
                        type=exchange.type,
                        durable=exchange.durable,
                        auto_delete=exchange.auto_delete,
                        internal=exchange.internal,
                        arguments=exchange.arguments,
                    )

    async def stop(self) -> None:
        """Settles what is in flight and leaves everything standing."""
        runners = [*self._runners.values(), *self._leaving]
        for runner in runners:
            runner.send(lifecycle.Stop())
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_PATIENCE):
                await asyncio.gather(*(runner.finished.wait() for runner in runners))


def _differs(running: Link, wanted: Link) -> bool:
    """What a link would have to be restarted for; the broker's policy object itself is no reason."""
    return _essence(running) != _essence(wanted)


def _essence(link: Link) -> Link:
    exchange = None if link.exchange is None else replace(link.exchange, policy=None)
    return replace(link, exchange=exchange)


def _log_change(runner: LinkRunner, before: LinkState) -> None:
    state, link = runner.state, runner.link
    if (state.status, state.error) == (before.status, before.error):
        return
    tell = log.warning if state.error else log.info
    tell(
        "link changed",
        link=link.id,
        kind=link.kind,
        vhost=link.vhost,
        name=link.name,
        upstream=link.upstream,
        status=state.status,
        previous=before.status,
        error=state.error or None,
    )


def report_failure(error: Exception) -> None:
    """What the watcher does with an error of `reload`: it is said, and everything stays as it is."""
    if isinstance(error, AgentError | BrokerError):
        log.error("definitions not read", error=str(error))
    else:
        log.error("unexpected error", error=type(error).__name__, exc_info=error)
