"""Requests of operators for links: carried out by the agent of the group that runs the link, and stored with its lease.

An agent that receives a request carries it out if it runs the link, and passes it on. The agent that runs the link may
be gone without that being known yet, so the others keep recent requests, in case that the link comes to them. A request
that could be passed on to nobody, or may not have arrived, is passed on once it is known which agent runs the link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from agent.core.links import lifecycle
from agent.core.links.lifecycle import Pause, Signal
from agent.core.links.reconcile import purpose_of
from agent.core.links.served_by import Other
from agent.core.model import Link
from agent.core.replicas.slots import Token
from agent.core.status.acknowledgements import Acknowledgement
from agent.runtime.replicas.replica import Replica
from agent.runtime.runner import LinkRunner
from agent.status.board import Board

KEPT_FOR: Final = 10.0
"""Seconds for which a request is kept. If the agent of a link is gone, the link runs elsewhere before that; later the
request may have been taken back elsewhere."""
ALONE_FOR: Final = 3.0
"""Seconds in which an agent that has just started finds the others."""
MOST: Final = 10_000

_EVENTS: Final[Mapping[str, lifecycle.Event]] = {
    "restart": Signal.RESTART,
    "pause": lifecycle.Pause(),
    "resume": Signal.RESUME,
}


@dataclass(frozen=True, slots=True)
class Request:
    action: str
    pause: Pause | None
    until: float


class Requests:
    """The last request for each link, kept for a limited time. `clock` is the loop's."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[str, Request] = {}  # the oldest first

    def keep(self, link_id: str, action: str, pause: Pause | None, *, kept_for: float = KEPT_FOR) -> None:
        self._kept.pop(link_id, None)
        self._expire()
        if len(self._kept) >= MOST:
            del self._kept[next(iter(self._kept))]
        self._kept[link_id] = Request(action, pause, self._clock() + kept_for)

    def take(self, link_id: str) -> Request | None:
        """The recent request for a link, which is removed; None if there is none."""
        found = self._kept.pop(link_id, None)
        return None if found is None or found.until <= self._clock() else found

    def clear(self) -> None:
        self._kept.clear()

    def _expire(self) -> None:
        """Remove expired requests. They are about in the order in which they came: usually there is nothing to do."""
        while self._kept and self._kept[oldest := next(iter(self._kept))].until <= self._clock():
            del self._kept[oldest]


class OperatorRequests:
    """Carries out the requests of operators, and passes them on to the other agents. `runners` are by the ids of their
    links."""

    def __init__(self, runners: Mapping[str, LinkRunner], replica: Replica, board: Board) -> None:
        self._runners = runners
        self._replica = replica
        self._board = board
        clock = asyncio.get_running_loop().time
        self._for_here = Requests(clock)  # of links that others run, in case that they come here
        self._to_pass_on = Requests(clock)

    def act(self, link_id: str, action: str, pause: Pause | None = None) -> None:
        """Handle an operator's request to this agent: carry it out or keep it, and pass it on."""
        runner = self._runners.get(link_id)
        if runner is None:
            return
        self._take(runner, action, pause)
        if not self._replica.ask_others(link_id, action, pause):
            self._to_pass_on.keep(link_id, action, pause, kept_for=ALONE_FOR)

    def asked_by_another(self, link_id: str, action: str, pause: Pause | None) -> None:
        """Handle an operator's request that another agent passed on."""
        runner = self._runners.get(link_id)
        if runner is not None and action in _EVENTS:
            self._take(runner, action, pause)

    def asked_in_vain(self, link_id: str, action: str, pause: Pause | None) -> None:
        """Keep a request to pass it on again: another agent may run the link by now, without knowing of it. A restart
        has been done, or is needless."""
        if action != "restart" and link_id in self._runners:
            self._to_pass_on.keep(link_id, action, pause)

    def hear_nothing(self) -> None:
        """Forget the requests passed on by other agents: from now on none arrive, and those may have been taken back
        since."""
        self._for_here.clear()

    def pass_on(self, link_id: str) -> None:
        """Pass on a kept request: it is known now which other agent runs the link."""
        if (asked := self._to_pass_on.take(link_id)) is not None:
            self.act(link_id, asked.action, asked.pause)

    def _take(self, runner: LinkRunner, action: str, pause: Pause | None) -> None:
        self._to_pass_on.take(runner.link.id)  # that was asked before
        if runner.waits_for(Other.REPLICA):
            self._remember_for_next(runner, action, pause)
        else:
            self._do(runner, action, pause)

    def _do(self, runner: LinkRunner, action: str, pause: Pause | None) -> None:
        event = pause or _EVENTS[action]
        if isinstance(event, lifecycle.Pause) and runner.state.paused:
            event = event.after(runner.state.pause)
        runner.send(event)
        runner.has_recalled = True
        self._remember(runner)

    def _remember_for_next(self, runner: LinkRunner, action: str, pause: Pause | None) -> None:
        """Keep a request for the next agent that runs the link. While a link is handed over, its slot is held here
        still, and what is stored goes with it. Its owner may be gone without that being known yet, and this agent the
        next one."""
        runner.has_recalled = False
        if action == "restart":  # not again here: its owner may have done it, and ended since
            runner.send(Signal.RESTART)
            self._replica.remember_finished(runner.link.id, None)
        else:
            self._for_here.keep(runner.link.id, action, pause)
            remembered = (pause or lifecycle.Pause()) if action == "pause" else None
            self._replica.remember_pause(runner.link.id, remembered)

    # What is remembered with the lease of a link

    def acknowledge(self, links: Mapping[str, Acknowledgement | None]) -> None:
        """Store that somebody knows of the trouble of links that run here, or takes that back."""
        self._board.acknowledge(links)
        self._replica.remember_acknowledged(
            {link_id: links[link_id] for link_id in links.keys() & self._runners.keys()}
        )

    def recall(self, runner: LinkRunner) -> None:
        """Apply what is stored with the lease to a link that has just come here. For a link that was here before, store
        its present state, which may have changed while there was no lease to store it in."""
        link = runner.link
        if not self._replica.holds(runner.slot):
            return
        if runner.has_recalled:
            self._remember(runner)
        else:
            stored = self._replica.stored(runner.slot)
            if (pause := stored.paused.get(link.id)) is not None:
                runner.send(pause)
            if (known := stored.acknowledged.get(link.id)) is not None:
                self._board.acknowledge({link.id: known})
            if _has_finished(link, stored):
                runner.note_completed()
            if (asked := self._for_here.take(link.id)) is not None:
                self._do(runner, asked.action, asked.pause)
        runner.has_recalled = True

    def recall_changed(self, runner: LinkRunner) -> None:
        """Apply what another agent has changed in the stored state of a link that runs here."""
        stored = self._replica.stored(runner.slot)
        runner.has_recalled = True
        if _has_finished(runner.link, stored):
            runner.note_completed()
        if (pause := stored.paused.get(runner.link.id)) is not None:
            runner.send(pause)
        elif runner.state.paused:
            runner.send(Signal.RESUME)

    def _remember(self, runner: LinkRunner) -> None:
        link_id = runner.link.id
        self._replica.remember_pause(link_id, runner.state.pause if runner.state.paused else None)
        self._replica.remember_acknowledged({link_id: self._board.acknowledged(link_id)})
        if not runner.state.completed:
            self._replica.remember_finished(link_id, None)

    def remember_finished(self, links: Iterable[Link]) -> None:
        """Store that these links have finished: they don't begin again where another agent takes them over, nor after a
        restart of this one."""
        for link in links:
            self._replica.remember_finished(link.id, purpose_of(link))

    def forget(self, link_id: str, *, keeps_pause: bool) -> None:
        """Forget a link that is gone: one of the same definition begins anew, unless somebody has paused it."""
        self._replica.remember_finished(link_id, None)
        self._replica.remember_acknowledged({link_id: None})
        if not keeps_pause:
            self._replica.remember_pause(link_id, None)


def _has_finished(link: Link, stored: Token) -> bool:
    """True if the stored state says that the link has done what it is defined for, here or elsewhere."""
    purpose = stored.finished.get(link.id)
    return purpose is not None and purpose == purpose_of(link)
