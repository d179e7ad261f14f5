"""A link's lifecycle as a state machine: (state, event) → (state, effects).

The runtime executes effects and reports their results; it decides nothing. Every opening is answered by `OPENED` or
`Failed`, every closing by `CLOSED`: a link never holds two consumers, however often it is restarted while it starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum, StrEnum, auto
from typing import Final

from agent.core.text import printable
from agent.errors import Failure, FailureKind, Side


class Status(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    BLOCKED = "blocked"
    STALLED = "stalled"
    BACKOFF = "backoff"
    PAUSED = "paused"
    STANDBY = "standby"
    INVALID = "invalid"
    TERMINATED = "terminated"
    STOPPING = "stopping"
    REMOVING = "removing"


class Level(StrEnum):
    """The state of all links together."""

    FINE = "fine"
    STARTING = "starting"
    DEGRADED = "degraded"
    DOWN = "down"


class Phase(StrEnum):
    """The resources that a link holds: none, a timer, connections being opened, connections, or connections being
    closed. `AWAITING_REMOVAL` is the time until the upstream objects of an unwanted link may be removed, `CLEANING` the
    removal."""

    IDLE = "idle"
    WAITING = "waiting"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    AWAITING_REMOVAL = "awaiting removal"
    CLEANING = "cleaning"
    GONE = "gone"


LONGEST_TEXT: Final = 300  # characters of what somebody writes
LONG_PAUSE: Final = 24 * 3600.0  # seconds from when on a pause was probably forgotten
LATEST: Final = 1e11  # seconds; a later time is none
UPSTREAM_FAILED: Final = Failure(side=Side.UPSTREAM)
"""The failure of a link of which nothing else is known: most requests go upstream."""

# Events


class Signal(Enum):
    """The events without details."""

    START = auto()
    OPENED = auto()  # queue, bindings and consumer exist; messages flow
    CLOSED = auto()
    RETRY_DUE = auto()
    PROGRESSED = auto()
    RESUME = auto()
    TAKE_OVER = auto()
    RESTART = auto()  # an operator restarted the link, or its definition changed
    WANTED_AGAIN = auto()  # the link is defined again
    KEPT = auto()  # the removal found messages in a queue that should have been empty, so it removed nothing
    CLEANED_UP = auto()  # the link's upstream objects are removed, or can't be
    STOP = auto()  # the agent stops or gives up the link; what exists upstream stays


@dataclass(frozen=True, slots=True)
class Failed:
    """Opening failed, or an open link broke. `steady`: it had run long enough to try again at once."""

    error: str
    failure: Failure = UPSTREAM_FAILED
    steady: bool = False


@dataclass(frozen=True, slots=True)
class Blocked:
    """`where` names the end, such as `shovel destination`, where that isn't its side."""

    side: Side
    reason: str = ""
    kind: FailureKind = FailureKind.BLOCKED
    where: str = ""


@dataclass(frozen=True, slots=True)
class Unblocked:
    side: Side


@dataclass(frozen=True, slots=True)
class Stalled:
    reason: str = ""
    side: Side = Side.DOWNSTREAM  # the broker that confirms nothing, or that probes can't be sent to


@dataclass(frozen=True, slots=True)
class Completed:
    """The link has done what it was defined for, and has nothing left to do; an operator may restart it. `earlier`: it
    had done so before it came to this agent.
    """

    earlier: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a link: by whom, since when in seconds since 1970, and why, as far as that is known."""

    by: str = ""
    at: float = 0.0
    reason: str = ""

    @classmethod
    def given(cls, by: object, at: object, reason: object) -> Pause:
        """A pause from values of any kind, since texts come from clients and from the broker; what is unusable is left
        out."""
        return cls(_text(by), read_time(at) or 0.0, _text(reason))

    @classmethod
    def read(cls, value: object) -> Pause:
        """A pause from a stored value. The link is paused whatever the value holds, since anybody may have written
        it."""
        given: Mapping[str, object] = value if isinstance(value, dict) else {}
        return cls.given(given.get("by"), given.get("at"), given.get("reason"))

    @property
    def text(self) -> str:
        """`paused by ann@ops since 2026-11-23 08:15 UTC: disk is replaced`, or what is known of that."""
        by = f" by {self.by}" if self.by else ""
        since = f" since {datetime.fromtimestamp(self.at, UTC):%Y-%m-%d %H:%M} UTC" if self.at else ""
        why = f": {self.reason}" if self.reason else ""
        return f"paused{by}{since}{why}" if by or since or why else ""

    def after(self, former: Pause) -> Pause:
        """The pause that holds after this one is requested during `former`: the former time stays. If this one has no
        reason, `former` stays as it is, unless it holds nothing."""
        if not self.reason and former.text:
            return former
        return replace(self, at=former.at or self.at)


def read_time(value: object) -> float | None:
    """Seconds since 1970; None if the value is no time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LATEST:
        return None
    return float(value)


def _text(value: object) -> str:
    return printable(value[:LONGEST_TEXT]).strip()[:LONGEST_TEXT] if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class StandAside:
    """Another replica or the native plugin runs this link. With a `failure` no replica runs it yet, for that reason."""

    reason: str
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Unwanted:
    """The link is no longer defined since this time: its upstream objects are removed later."""

    since: float


@dataclass(frozen=True, slots=True)
class RemovalDue:
    """The link has been unwanted for long enough. `messages`: whether messages may wait in its queue even so."""

    messages: bool


Event = Signal | Failed | Blocked | Unblocked | Stalled | Completed | Pause | StandAside | Unwanted | RemovalDue

# Effects


class Do(Enum):
    """The effects without details."""

    OPEN = auto()
    CANCEL_WAIT = auto()
    HOLD_READING = auto()  # consume no more messages; those in flight may settle
    RELEASE_READING = auto()
    CANCEL_REMOVAL_WAIT = auto()
    FINISH = auto()  # nothing is held any more, and there are no further effects


@dataclass(frozen=True, slots=True)
class Close:
    """`settle`: wait for messages in flight first, which a link that opens may have; after a failure there are none to
    wait for.
    """

    settle: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """`slow`: only a change of configuration is likely to help."""

    attempt: int
    slow: bool = False


@dataclass(frozen=True, slots=True)
class AwaitRemoval:
    """Read the queue's depth until its removal is due, and report `RemovalDue` then."""

    since: float


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Remove the link's upstream objects; without `messages`, only if its queue is empty."""

    messages: bool


Effect = Do | Close | Wait | AwaitRemoval | CleanUp


@dataclass(frozen=True, slots=True)
class LinkState:
    phase: Phase = Phase.IDLE
    started: bool = False
    paused: bool = False
    pause: Pause = Pause()
    standby: str | None = None
    unserved: Failure | None = None  # why nobody runs it, while it is on standby and nobody does
    unwanted: Unwanted | None = None
    is_stopped: bool = False
    broken: Failed | None = None
    attempt: int = 0
    blocked: tuple[Blocked, ...] = ()
    stalled: Stalled | None = None
    completed: bool = False

    @property
    def wants_to_run(self) -> bool:
        wanted = not self.is_stopped and self.unwanted is None and not self.completed
        return self.started and wanted and not self.paused and self.standby is None

    @property
    def status(self) -> Status:
        if self.is_stopped or (self.unwanted is not None and self.phase in {Phase.CLEANING, Phase.GONE}):
            return Status.STOPPING
        if self.unwanted is not None:
            return Status.REMOVING
        if self.completed:
            return Status.TERMINATED
        if self.paused:
            return Status.PAUSED
        if self.standby is not None:
            return Status.STANDBY if self.unserved is None else Status.BACKOFF
        if self.broken is not None:
            return Status.INVALID if self.broken.failure.is_permanent else Status.BACKOFF
        if self.blocked:
            return Status.BLOCKED
        if self.phase is not Phase.OPEN:
            return Status.STARTING
        return Status.STALLED if self.stalled is not None else Status.RUNNING

    @property
    def error(self) -> str:
        """The reason why the link isn't running, in an operator's words; empty if there is none."""
        match self.status:
            case Status.PAUSED:
                return self.pause.text
            case Status.STANDBY:
                return self.standby or ""
            case Status.INVALID | Status.BACKOFF:
                return self.broken.error if self.broken else self.standby or ""
            case Status.BLOCKED:
                return "; ".join(f"{block.where or block.side} blocked: {block.reason}" for block in self.blocked)
            case Status.STALLED:
                return self.stalled.reason if self.stalled else ""
            case Status.REMOVING:
                return NO_LONGER_DEFINED
            case Status.TERMINATED:
                return HAS_COMPLETED
            case _:
                return ""

    @property
    def failure(self) -> Failure | None:
        """The facts of what keeps messages from moving; None while nothing does, or if an operator requested that."""
        match self.status:
            case Status.INVALID | Status.BACKOFF:
                return self.unserved if self.broken is None else self.broken.failure
            case Status.BLOCKED:
                sides, kinds = {block.side for block in self.blocked}, {block.kind for block in self.blocked}
                # That messages can't be sent counts before that they can't be acknowledged.
                side = Side.DOWNSTREAM if Side.DOWNSTREAM in sides else Side.UPSTREAM
                return Failure(min(kinds, key=[*FailureKind].index), side=side)
            case Status.STALLED if self.stalled is not None:
                return Failure(FailureKind.NO_CONFIRMS, side=self.stalled.side)
            case _:
                return None


NO_LEASE: Final = Failure(FailureKind.LOST, side=Side.DOWNSTREAM)
"""The failure of a link that no agent of the group runs: leases are in the downstream, and no other agent has taken
this one either."""
NO_LONGER_DEFINED: Final = "no longer defined; what it built upstream is removed unless it is defined again"
HAS_COMPLETED: Final = "finished: it has moved all that its definition asks for; restart it to run it again"

Step = tuple[LinkState, tuple[Effect, ...]]


def step(state: LinkState, event: Event) -> Step:
    """A link's next state, and the effects that lead to it."""
    match event:
        case (
            Signal.OPENED | Failed() | Signal.CLOSED | Signal.RETRY_DUE | RemovalDue() | Signal.KEPT | Signal.CLEANED_UP
        ):
            return _answered(state, event)
        case Blocked() | Unblocked() | Stalled() | Signal.PROGRESSED:
            return _flow(state, event)
        case Signal.RESTART:
            return _restart(state)
        case _:
            return _follow(_asked(state, event))


def _asked(state: LinkState, event: Event) -> LinkState:
    """Handles requests from operators and definitions; they are remembered in every phase."""
    match event:
        case Signal.START:
            return replace(state, started=True)
        case Completed(earlier):
            return replace(state, completed=earlier or state.phase is Phase.OPEN or state.completed)
        case Pause():
            return replace(state, paused=True, pause=event)
        case Signal.RESUME:
            return replace(state, paused=False, pause=Pause())
        case StandAside(reason, failure):
            return replace(state, standby=reason, unserved=failure)
        case Signal.TAKE_OVER:
            return replace(state, standby=None, unserved=None)
        case Unwanted():
            return replace(state, unwanted=state.unwanted or event)
        case Signal.WANTED_AGAIN:
            return replace(state, unwanted=None)
        case Signal.STOP:
            return replace(state, is_stopped=True)
        case _:
            return state


def _follow(state: LinkState) -> Step:
    """Moves the current state towards the wanted one."""
    match state.phase:
        case Phase.IDLE if state.wants_to_run:
            return _open(state)
        case Phase.IDLE if state.is_stopped:
            return replace(state, phase=Phase.GONE), (Do.FINISH,)
        case Phase.IDLE if state.unwanted is not None and state.standby is None:
            return replace(state, phase=Phase.AWAITING_REMOVAL), (AwaitRemoval(state.unwanted.since),)
        case Phase.AWAITING_REMOVAL if state.unwanted is None or state.is_stopped or state.standby is not None:
            idle, effects = _follow(replace(state, phase=Phase.IDLE))
            return idle, (Do.CANCEL_REMOVAL_WAIT, *effects)
        case Phase.WAITING if not state.wants_to_run:
            idle, effects = _follow(replace(state, phase=Phase.IDLE, broken=None, attempt=0))
            return idle, (Do.CANCEL_WAIT, *effects)
        case Phase.OPENING | Phase.OPEN if not state.wants_to_run:
            return _close(replace(state, broken=None, attempt=0), settle=True)
        case _:
            return state, ()


def _answered(state: LinkState, event: Event) -> Step:
    """Handles the result of an effect; results of effects that were given up meanwhile are ignored."""
    match event, state.phase:
        case Signal.OPENED, Phase.OPENING:
            return replace(state, phase=Phase.OPEN, broken=None), (Do.HOLD_READING,) if state.blocked else ()
        case Failed(), Phase.OPENING | Phase.OPEN:
            attempt = 1 if event.steady else state.attempt + 1
            return _close(replace(state, broken=event, attempt=attempt), settle=False)
        case Signal.CLOSED, Phase.CLOSING if state.broken is not None and state.wants_to_run:
            waiting = replace(state, phase=Phase.WAITING)
            return waiting, (Wait(state.attempt, slow=state.broken.failure.is_permanent),)
        case Signal.CLOSED, Phase.CLOSING:
            return _follow(replace(state, phase=Phase.IDLE, broken=None))
        case Signal.RETRY_DUE, Phase.WAITING:
            return _open(state)
        case RemovalDue(messages), Phase.AWAITING_REMOVAL:
            return replace(state, phase=Phase.CLEANING), (CleanUp(messages),)
        case Signal.CLEANED_UP, Phase.CLEANING if state.unwanted is not None:
            return replace(state, phase=Phase.GONE), (Do.FINISH,)
        case Signal.KEPT | Signal.CLEANED_UP, Phase.CLEANING:
            return _follow(replace(state, phase=Phase.IDLE))
        case _:
            return state, ()


def _restart(state: LinkState) -> Step:
    fresh = replace(state, broken=None, attempt=0, completed=False)
    match state.phase:
        case Phase.IDLE if state.completed:
            return _follow(fresh)
        case Phase.OPENING | Phase.OPEN:
            return _close(fresh, settle=True)
        case Phase.CLOSING:
            return fresh, ()
        case Phase.WAITING:
            opening, effects = _open(fresh)
            return opening, (Do.CANCEL_WAIT, *effects)
        case _:
            return state, ()


def _flow(state: LinkState, event: Event) -> Step:
    """Handles flow control of brokers; reading is held while either side is blocked, once the link is open. A link that
    is opening is blocked, too: it waits while the downstream doesn't answer.
    """
    if state.phase not in {Phase.OPENING, Phase.OPEN}:
        return state, ()
    is_open = state.phase is Phase.OPEN
    match event:
        case Blocked(side):
            others = tuple(block for block in state.blocked if block.side is not side)
            holds = is_open and not state.blocked
            return replace(state, blocked=(*others, event)), (Do.HOLD_READING,) if holds else ()
        case Unblocked(side):
            left = tuple(block for block in state.blocked if block.side is not side)
            releases = is_open and state.blocked and not left
            return replace(state, blocked=left), (Do.RELEASE_READING,) if releases else ()
        case Stalled() | Signal.PROGRESSED if not is_open:
            return state, ()
        case Stalled():
            return replace(state, stalled=event), ()
        case _:
            return replace(state, stalled=None, attempt=0), ()


def _open(state: LinkState) -> Step:
    return replace(state, phase=Phase.OPENING), (Do.OPEN,)


def _close(state: LinkState, *, settle: bool) -> Step:
    return replace(state, phase=Phase.CLOSING, blocked=(), stalled=None), (Close(settle),)
