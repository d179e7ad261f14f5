"""Proof that the simulation can fail: each safeguard of the agent, and how to take it out.

Here, and only here, the agent's code is changed: a safeguard that can be taken out and isn't missed isn't tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from agent.amqp.data.publish_tracker import PublishTracker
from agent.amqp.wire.connection import WireConnection
from agent.core.links.demand import Demand
from agent.core.links.upstream_steps import DeleteInternal
from agent.core.model import AckMode
from agent.core.replicas.sharing import Sharing
from agent.downstream.consumers import Consumers
from agent.links.exchange.binder import Binder
from agent.links.exchange.builder import Builder
from agent.links.exchange.link import ExchangeSession
from agent.links.exchange.upstream_objects import Canary
from agent.links.queue.link import QueueSession
from agent.runtime.replicas.lease_channel import LeaseChannel, LeaseDeadline
from agent.runtime.runner import LinkRunner
from agent.runtime.session_runner import SessionRunner


def _put(owner: Any, name: str, what: Any) -> None:
    getattr(owner, name)  # what has another name by now would be left in
    setattr(owner, name, what)


def _replace(owner: type, name: str, make: Callable[[Any], Any]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


async def _nothing(*_: Any, **__: Any) -> None: ...


def acknowledge_before_confirm() -> None:
    """What the downstream has yet to confirm is acknowledged upstream."""

    def early(made: Any) -> Any:
        def made_early(self: PublishTracker, *given: Any, **options: Any) -> None:
            options["ack_mode"] = AckMode.ON_PUBLISH
            made(self, *given, **options)

        return made_early

    _replace(PublishTracker, "__init__", early)


def acknowledge_twice() -> None:
    """A delivery is settled again that is settled already."""
    say = PublishTracker._say

    def twice(self: PublishTracker, *given: Any) -> None:
        say(self, *given)
        say(self, *given)

    _put(PublishTracker, "_say", twice)


def permit() -> None:
    """An agent that lost its lease without noticing writes on."""

    def forever(self: LeaseDeadline, lease: LeaseChannel | None) -> None:
        self._permit.until = math.inf

    _put(LeaseDeadline, "move", forever)


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

    _replace(SessionRunner, "_close", hasty)


def heartbeats() -> None:
    """Silence is never noticed."""

    def deaf(beat: Any) -> Any:
        def beats(self: WireConnection) -> None:
            self.inbound.heard = self._loop.time()
            beat(self)

        return beats

    _replace(WireConnection, "_beat", deaf)
    _put(LeaseChannel, "live_at", property(lambda self: self._connection.wire._loop.time()))


def remove_old_bindings() -> None:
    """What is no longer bound downstream stays bound upstream."""
    _put(Binder, "unbind", _nothing)


def rebuild_beside() -> None:
    """The old internal exchange is deleted before the new one is bound."""
    begin = Builder._begin

    async def deletes_first(self: Builder, seen: Any) -> Any:
        self._steps.sort(key=lambda step: not isinstance(step, DeleteInternal))
        return await begin(self, seen)

    _put(Builder, "_begin", deletes_first)


def remove_rivals() -> None:
    """What an agent has built that lost the queue stays."""
    _put(Builder, "remove_rivals", _nothing)


def remove_canaries() -> None:
    """The canary stays when the link is removed."""
    _put(Canary, "remove", _nothing)


def remove_unwanted() -> None:
    """What a link built stays when the link isn't defined any more."""
    _put(LinkRunner, "_clean_up", _cleaned)


async def _cleaned(runner: LinkRunner, **_: bool) -> None:
    from agent.core.links.lifecycle import Signal

    runner.send(Signal.CLEANED_UP)


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
    from agent.links.brokers import Connections

    _put(Connections, "go_on", lambda *_: None)


def give_way() -> None:
    """A queue link consumes upstream with the priority of everybody else."""
    from agent.links.queue import link

    _put(link, "PRIORITY", ())


def count_only_users() -> None:
    """Consumers of a queue that are other links are counted with those who need messages."""
    _put(Consumers, "below_zero", lambda *_: 0)


def count_what_was_cut_off() -> None:
    """A link that consumes downstream and whose channel ended, of which brokers tell nothing more, is still counted."""
    _put(Consumers, "_channel_closed", lambda *_: None)


def stop_without_users() -> None:
    """A queue link goes on when nobody consumes downstream any more."""
    _put(Demand, "_without_users", lambda *_: None)


def end_where_returned() -> None:
    """What the downstream returns, as its queue is gone, is acknowledged upstream."""

    def unaware(options: Any) -> Any:
        return lambda self: replace(options(self), ends_on_return=False)

    _replace(QueueSession, "_options", unaware)


def wait_for_the_holder() -> None:
    """Who holds a link's lease and has no links yet is taken for one that will never know it."""
    _put(Sharing, "_may_share_links", lambda self, holder, _: not holder.links.isdisjoint(self.links))


def wait_for_the_former() -> None:
    """Who gets the slot of an agent that may not know yet that it lost it runs queue links and shovels at once."""
    held_here = Sharing._held_here

    def hasty(self: Sharing, held: Any, *given: Any) -> Any:
        return held_here(self, replace(held, waits_for=None), *given)

    _put(Sharing, "_held_here", hasty)


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
        give_way,
        count_only_users,
        count_what_was_cut_off,
        stop_without_users,
        end_where_returned,
        wait_for_the_holder,
        wait_for_the_former,
    )
}


def take_out(name: str) -> None:
    SAFEGUARDS[name]()
