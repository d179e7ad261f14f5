"""Proof that the simulation can fail: each safeguard of the agent, and how to take it out.

Here, and only here, the agent's code is changed: a safeguard that can be taken out and isn't missed isn't tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from agent.amqp.data.target import Target
from agent.amqp.wire.connection import WireConnection
from agent.core.links.reconcile import DeleteInternal
from agent.core.model import AckMode
from agent.core.replicas.sharing import Sharing
from agent.links.exchange.binder import Binder
from agent.links.exchange.building import Building
from agent.links.exchange.canary import Canary
from agent.links.exchange.session import ExchangeSession
from agent.runtime.replicas.fence import Fence
from agent.runtime.replicas.lease_channel import LeaseChannel
from agent.runtime.runner import LinkRunner


def _put(owner: Any, name: str, what: Any) -> None:
    getattr(owner, name)  # what has another name by now would be left in
    setattr(owner, name, what)


def _replace(owner: type, name: str, make: Callable[[Any], Any]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


async def _nothing(*_: Any, **__: Any) -> None: ...


def acknowledge_before_confirm() -> None:
    """What the downstream has yet to confirm is acknowledged upstream."""

    def early(made: Any) -> Any:
        def made_early(self: Target, *given: Any, **options: Any) -> None:
            options["ack_mode"] = AckMode.ON_PUBLISH
            made(self, *given, **options)

        return made_early

    _replace(Target, "__init__", early)


def acknowledge_twice() -> None:
    """A delivery is settled again that is settled already."""
    say = Target._say

    def twice(self: Target, *given: Any) -> None:
        say(self, *given)
        say(self, *given)

    _put(Target, "_say", twice)


def permit() -> None:
    """An agent that lost its lease without noticing writes on."""

    def unfenced(self: Fence, lease: LeaseChannel | None) -> None:
        self._permit.until = math.inf

    _put(Fence, "move", unfenced)


def token() -> None:
    """Every agent runs every link, whoever has its token."""
    _put(Sharing, "verdict", lambda *_: True)


def token_and_exclusive_consumer() -> None:
    """The same, and upstream nothing refuses the second."""
    token()

    def shared(options: Any) -> Any:
        return lambda self, queue: replace(options(self, queue), exclusive=False)

    _replace(ExchangeSession, "_options", shared)
    from agent.links.exchange import upstream_objects

    ensure = upstream_objects.ensure_queue

    async def unseen(*given: Any, **options: Any) -> tuple[int, str]:
        _, note = await ensure(*given, **options)
        return 0, note

    _put(upstream_objects, "ensure_queue", unseen)


def settle_before_closing() -> None:
    """What is in flight is left unsettled when a link ends in order."""

    def hasty(close: Any) -> Any:
        return lambda self, *, settle: close(self, settle=False)

    _replace(LinkRunner, "_close", hasty)


def heartbeats() -> None:
    """Silence is never noticed."""

    def deaf(beat: Any) -> Any:
        def beats(self: WireConnection) -> None:
            self._heard = self._loop.time()
            beat(self)

        return beats

    _replace(WireConnection, "_beat", deaf)
    _put(LeaseChannel, "live_at", property(lambda self: self._connection.wire._loop.time()))


def remove_old_bindings() -> None:
    """What is no longer bound downstream stays bound upstream."""
    _put(Binder, "unbind", _nothing)


def rebuild_beside() -> None:
    """The old internal exchange is deleted before the new one is bound."""
    begin = Building._begin

    async def deletes_first(self: Building, seen: Any) -> Any:
        self._steps.sort(key=lambda step: not isinstance(step, DeleteInternal))
        return await begin(self, seen)

    _put(Building, "_begin", deletes_first)


def remove_rivals() -> None:
    """What an agent has built that lost the queue stays."""
    _put(Building, "remove_rivals", _nothing)


def remove_canaries() -> None:
    """The canary stays when the link is removed."""
    _put(Canary, "remove", _nothing)


def remove_unwanted() -> None:
    """What a link built stays when the link isn't defined any more."""
    _put(LinkRunner, "_clean_up", _cleaned)


async def _cleaned(runner: LinkRunner, **_: bool) -> None:
    from agent.core.links.lifecycle import CleanedUp

    runner.send(CleanedUp())


def single_active_consumer() -> None:
    """Renewed tokens may go to any agent of the group."""

    def plain(arguments: Any) -> Any:
        return lambda self, kind: tuple(each for each in arguments(self, kind) if each[0] != "x-single-active-consumer")

    _replace(LeaseChannel, "_arguments", plain)


def retry() -> None:
    """A link that has failed isn't tried again."""
    _put(LinkRunner, "_wait", lambda *_, **__: None)


def resume_after_an_alarm() -> None:
    """What was held back during an alarm is held back for ever."""
    from agent.links.connections import Connections

    _put(Connections, "go_on", lambda *_: None)


SAFEGUARDS: Final[dict[str, Callable[[], None]]] = {
    each.__name__: each
    for each in (
        acknowledge_before_confirm,
        acknowledge_twice,
        permit,
        token,
        token_and_exclusive_consumer,
        settle_before_closing,
        heartbeats,
        remove_old_bindings,
        rebuild_beside,
        remove_rivals,
        remove_canaries,
        remove_unwanted,
        single_active_consumer,
        retry,
        resume_after_an_alarm,
    )
}


def take_out(name: str) -> None:
    SAFEGUARDS[name]()
