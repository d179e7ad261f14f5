"""The plan: what `run` would create, keep and delete on which broker, and why. Reads nothing itself.

Why: docs/decisions/0031-plan-and-run-agree.md, docs/decisions/0038-leftovers-are-kept.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from agent.core.addresses.rabbitmq_address import addressed
from agent.core.fields import EMPTY, Table
from agent.core.links.upstream_steps import (
    Connect,
    DeleteInternal,
    EnsureCanary,
    EnsureExchange,
    EnsureInternal,
    EnsureQueue,
    Known,
    Seen,
    Step,
    Verb,
    Wanted,
    upstream_steps,
)
from agent.core.model import (
    AddressDestination,
    AddressSource,
    Binding,
    DeclaredExchange,
    Exchange,
    ExchangeDestination,
    ExchangeLink,
    ExchangeSource,
    Link,
    NativeLink,
    QueueDestination,
    QueueLink,
    QueueSource,
    ShovelLink,
    ShovelPlace,
    native_link,
)
from agent.core.rules import declarations, names
from agent.core.rules.hops import Route, Site
from agent.core.text import counted
from agent.errors import UNKNOWN, Failure


@dataclass(frozen=True, slots=True)
class Action:
    """One thing `run` would do on one broker; a binding's `name` is its routing key, `type` an exchange's."""

    verb: Verb
    broker: str
    vhost: str
    kind: str
    name: str
    why: str
    arguments: Table = EMPTY
    type: str = ""


class Outlook(StrEnum):
    """The state that a link would have."""

    RUN = "run"
    STANDBY = "standby"
    BACKOFF = "backoff"
    INVALID = "invalid"


_UNSURE: Final = frozenset({Outlook.BACKOFF, Outlook.INVALID})


@dataclass(frozen=True, slots=True)
class RunningLink:
    """A link of an agent that runs, which keeps what it knows when its definition changes.

    `backlog` are the messages that wait, those that it has taken included, when it last looked. An exchange link has
    `uris`, its addresses as they may be shown, and what it has bound where it knows that.
    """

    id: str
    kind: str
    vhost: str
    name: str
    upstream: str
    backlog: int | None
    is_consuming: bool
    is_paused: bool
    uris: frozenset[str] = frozenset()
    known: Known | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """The state of the broker at a link's other end; if it could not be read, `error` is the reason."""

    broker: str
    site: Site | None = None
    seen: Seen = field(default_factory=Seen)
    error: str | None = None
    failure: Failure = UNKNOWN  # where there is an error
    destination: Sight | None = None  # of a shovel, whose other end this is
    declares_queue: bool = False  # it is missing at an address of AMQP 1.0, and the shovel declares it
    gives_credit: bool = True  # an address of AMQP 1.0 that is written to
    is_served_by_agent: bool = False  # the agent that runs with this configuration consumes from the queue
    running: RunningLink | None = None  # the same link of that agent

    def in_queue(self, ready: int) -> str:
        """Text on a queue with `ready` messages. A broker asked over AMQP doesn't count messages that were delivered
        and aren't acknowledged, so those of the running agent are added."""
        taken = 0 if self.running is None or not self.running.is_consuming else (self.running.backlog or 0) - ready
        more = f" and {taken:,} that the agent has taken and not acknowledged" if taken > 0 else ""
        return f"exists with {counted(ready, 'message')}{more}"


@dataclass(frozen=True, slots=True)
class PlannedLink:
    link: Link
    outlook: Outlook
    reason: str
    broker: str
    bindings: int = 0
    actions: tuple[Action, ...] = ()
    is_paused: bool = False  # by an operator: it does nothing until it is resumed
    failure: Failure | None = None  # of the broker that stops it

    @property
    def changes(self) -> tuple[Action, ...]:
        """The actions that change something, which happen without an operator; none while the link is paused."""
        return () if self.is_paused else tuple(each for each in self.actions if each.verb is not Verb.KEEP)


@dataclass(frozen=True, slots=True)
class Plan:
    downstream: tuple[Action, ...] = ()
    links: tuple[PlannedLink, ...] = ()
    ended: tuple[RunningLink, ...] = ()
    """Links that the running agent has and nothing defines."""

    @property
    def has_changes(self) -> bool:
        """True if anything would change, or if that isn't known because nothing could be read."""
        return (
            any(each.verb is not Verb.KEEP for each in self.downstream)
            or bool(self.ended)
            or any(planned.changes or planned.outlook in _UNSURE for planned in self.links)
        )


@dataclass(frozen=True, slots=True)
class Downstream:
    """The plan's facts about the downstream."""

    broker: str
    cluster: str
    bindings: Mapping[tuple[str, str], tuple[Binding, ...]] = field(default_factory=dict)
    native_links: frozenset[NativeLink] = frozenset()
    """(vhost, exchange or queue, upstream) of the links that the native plugin runs."""


def plan_declarations(
    downstream: Downstream, vhost: str, declared: Iterable[DeclaredExchange], standing: Mapping[str, Exchange]
) -> tuple[Action, ...]:
    """The exchanges of the configuration, compared with what exists."""
    return tuple(
        _plan_declaration(downstream.broker, vhost, each, standing.get(each.exchange.name)) for each in declared
    )


def _plan_declaration(broker: str, vhost: str, declared: DeclaredExchange, standing: Exchange | None) -> Action:
    wanted = declared.exchange
    if standing is None:
        why = f"declared in {declared.place}"
        return Action(Verb.CREATE, broker, vhost, "exchange", wanted.name, why, wanted.arguments, wanted.type)
    differing = ", ".join(
        name
        for name in ("type", "durable", "auto_delete", "internal")
        if getattr(wanted, name) != getattr(standing, name)
    )
    why = f"exists, but its {differing} differ from {declared.place}; it is used as it is" if differing else "exists"
    return Action(Verb.KEEP, broker, vhost, "exchange", wanted.name, why)


def plan_link(link: Link, sight: Sight, downstream: Downstream) -> PlannedLink:
    """The plan of one link: its definition compared with what was seen at its other end."""
    is_paused = sight.running is not None and sight.running.is_paused
    return replace(_plan_link(link, sight, downstream), is_paused=is_paused)


def _plan_link(link: Link, sight: Sight, downstream: Downstream) -> PlannedLink:
    outlook, reason, failure = _outlook(link, sight, downstream)
    if outlook is not Outlook.RUN:
        return PlannedLink(link, outlook, reason, _concerned(link, sight, outlook), failure=failure)
    actions: tuple[Action, ...] = ()
    match link:
        case ExchangeLink() if sight.site is not None:
            return _plan_exchange_link(link, sight, upstream=sight.site, downstream=downstream)
        case QueueLink():
            missing = "missing upstream; declared with the downstream's attributes"
            exists = "; queue links delete nothing upstream"
            like = declarations.like_queue(link.queue)
            actions = (_queue(sight, link.remote_name, like, missing=missing, exists=exists),)
        case ShovelLink():
            actions = (*_shovel_queues(link, sight), *_stream_place(link, sight, downstream))
    return PlannedLink(link, outlook, reason, sight.broker, actions=actions)


def _outlook(link: Link, sight: Sight, downstream: Downstream) -> _Reasoned:
    if link.problem is not None:
        return _Reasoned(Outlook.INVALID, link.problem)
    if native_link(link) in downstream.native_links:
        waits = f"{plugin_of(link)} of the downstream runs this link; the agent waits until it ends"
        return _Reasoned(Outlook.STANDBY, waits)
    if sight.error is not None:
        return _stopped_by(sight.failure, sight.error)
    if isinstance(link, ShovelLink):
        return _outlook_of_shovel(link, sight)
    queue = sight.seen.queue
    if isinstance(link, QueueLink) and queue is None and link.queue.unusable is not None:
        return _Reasoned(Outlook.INVALID, declarations.undeclarable(link.remote_name, link.queue))
    if isinstance(link, ExchangeLink) and queue is not None and queue.consumers and not sight.is_served_by_agent:
        served = f"the upstream queue has {counted(queue.consumers, 'consumer')}"
        waits = f"{served}: the federation plugin or another agent serves it; the agent waits"
        return _Reasoned(Outlook.STANDBY, waits)
    return _RUNS


class _Reasoned(NamedTuple):
    outlook: Outlook
    reason: str = ""
    failure: Failure | None = None


_RUNS: Final = _Reasoned(Outlook.RUN)


def _stopped_by(failure: Failure, error: str) -> _Reasoned:
    return _Reasoned(Outlook.INVALID if failure.is_permanent else Outlook.BACKOFF, error, failure)


def plugin_of(link: Link) -> str:
    """The name of the broker's plugin that runs links of this kind."""
    return "the shovel plugin" if isinstance(link, ShovelLink) else "the federation plugin"


def _plan_exchange_link(link: ExchangeLink, sight: Sight, *, upstream: Site, downstream: Downstream) -> PlannedLink:
    route = Route(upstream, Site(downstream.cluster, link.vhost), link.name, link.settings.max_hops)
    wanted = Wanted(link, route)
    bindings = downstream.bindings.get((link.vhost, link.name), ())
    printed = _Printed(sight, wanted, bindings)
    steps = upstream_steps(wanted, sight.seen)
    actions = tuple(action for step in steps for action in printed.actions(step))
    letter = [step.letter for step in steps if isinstance(step, Connect)][-1]
    return PlannedLink(link, Outlook.RUN, "", sight.broker, len(wanted.groups(bindings, letter)), actions)


@dataclass(frozen=True, slots=True)
class _Printed:
    """The steps of one exchange link as actions for people."""

    sight: Sight
    wanted: Wanted
    bindings: tuple[Binding, ...]

    def actions(self, step: Step) -> Iterator[Action]:
        wanted, like, queue = self.wanted, self.wanted.link.exchange, self.sight.seen.queue
        match step:
            case EnsureExchange(Verb.KEEP as verb):
                yield self._action(verb, "exchange", wanted.link.remote_name, "the upstream exchange exists")
            case EnsureExchange(verb):
                why = f"missing upstream; declared with the downstream's type {like.type} and attributes"
                yield self._action(verb, "exchange", wanted.link.remote_name, why, like.arguments, type_=like.type)
            case EnsureQueue(verb) if queue is not None:
                why = f"{self.sight.in_queue(queue.messages)}, which will be forwarded"
                yield self._action(verb, "queue", wanted.queue, why)
            case EnsureQueue(verb):
                why = "buffers what the downstream hasn't taken yet"
                yield self._action(verb, "queue", wanted.queue, why, wanted.queue_arguments)
            case EnsureInternal(Verb.KEEP as verb, letter):
                why = "internal; its bindings are known, or completed"
                yield self._action(verb, "exchange", wanted.internal(letter), why)
            case EnsureInternal(verb, letter):
                fallback, native = declarations.FALLBACK_TYPE, declarations.NATIVE_TYPE
                why = f"internal; carries the grouped bindings into the queue; {fallback} where the type is unknown"
                arguments = wanted.internal_arguments
                yield self._action(verb, "exchange", wanted.internal(letter), why, arguments, type_=native)
            case Connect():
                yield from self._bindings(step)
            case DeleteInternal(letter, why):
                yield self._action(Verb.DELETE, "exchange", wanted.internal(letter), why)
            case EnsureCanary(verb) if wanted.canary is not None:
                why = (
                    "internal; goes when the upstream exchange is deleted, which shows no other way; "
                    "carries no messages"
                )
                yield self._action(verb, "exchange", wanted.canary, why, type_=declarations.FALLBACK_TYPE)

    def _bindings(self, step: Connect) -> Iterator[Action]:
        source, destination = self.wanted.link.remote_name, self.wanted.internal(step.letter)
        change = step.change(self.wanted, self.bindings)
        already = ", unless it is bound already" if step.more_may_be else ""
        for verb, groups, why in (
            (Verb.BIND, change.bind, f"from {source!r} to {destination!r}, as downstream{already}"),
            (Verb.UNBIND, change.unbind, f"from {source!r} to {destination!r}, since nothing downstream is bound so"),
        ):
            for group in groups:
                yield self._action(verb, "binding", group.routing_key, why, group.arguments)

    def _action(
        self, verb: Verb, kind: str, name: str, why: str, arguments: Table = EMPTY, *, type_: str = ""
    ) -> Action:
        vhost = self.wanted.route.upstream.vhost
        return Action(verb, self.sight.broker, vhost, kind, name, why, arguments, type_)


def _queue(sight: Sight, name: str, arguments: Table, *, missing: str, exists: str = "") -> Action:
    """The queue at the other end of a queue link or shovel. `missing` is why it is declared, `exists` what is added
    where it needn't be."""
    vhost, queue = sight.site.vhost if sight.site else "", sight.seen.queue
    if queue is None:
        return Action(Verb.CREATE, sight.broker, vhost, "queue", name, missing, arguments)
    return Action(Verb.KEEP, sight.broker, vhost, "queue", name, sight.in_queue(queue.messages) + exists)


def _stream_place(link: ShovelLink, sight: Sight, downstream: Downstream) -> Iterator[Action]:
    if not link.shovel.reads_stream:
        return
    name, vhost = names.stream_offset(link.vhost, link.name, downstream.cluster), sight.site.vhost if sight.site else ""
    if sight.seen.remembers_offset:
        why = "exists; the shovel goes on in the stream behind the offset in it"
        yield Action(Verb.KEEP, sight.broker, vhost, "queue", name, why)
    else:
        why = "remembers how far the stream is copied"
        yield Action(
            Verb.CREATE, sight.broker, vhost, "queue", name, why, declarations.offset_queue(limits_deliveries=False)
        )


def _concerned(link: Link, sight: Sight, outlook: Outlook) -> str:
    """The broker that the reason for the outlook is about: the destination of a shovel whose source has all that it
    needs, otherwise the broker at the other end."""
    is_source = sight.error is not None or (isinstance(link, ShovelLink) and _missing(link.shovel.source, sight))
    if is_source or sight.destination is None or link.problem is not None or outlook is Outlook.STANDBY:
        return sight.broker
    return sight.destination.broker


def _outlook_of_shovel(link: ShovelLink, sight: Sight) -> _Reasoned:
    """The shovel waits for what is missing at either end and isn't declared by it."""
    destination = sight.destination
    if destination is not None and destination.error is not None:
        return _stopped_by(destination.failure, destination.error)
    waits = [_missing(link.shovel.source, sight)]
    if destination is not None:
        waits.append(_missing(link.shovel.destination, destination))
    reason = "; ".join(filter(None, waits))
    return _Reasoned(Outlook.BACKOFF, reason) if reason else _RUNS


def _missing(place: ShovelPlace, sight: Sight) -> str:
    """Text on what is missing at one end of a shovel, and what to do; empty if nothing is."""
    seen = sight.seen
    end, key = ("source", "src") if isinstance(place, QueueSource | ExchangeSource) else ("destination", "dest")
    at = f"is missing at the {end}, {sight.broker}"
    match place:
        case QueueSource(queue, _, True) | QueueDestination(queue, _, True) if seen.queue is None:
            predeclared = f"{key}-predeclared"
            return (
                f"queue {queue!r} {at}, and {predeclared} says that it exists: declare it, or leave out {predeclared}"
            )
        case ExchangeSource(exchange) | ExchangeDestination(exchange) if exchange and not seen.exchange_exists:
            return f"exchange {exchange!r} {at}: declare it there, or change {key}-exchange"
    return ""


def _shovel_queues(link: ShovelLink, sight: Sight) -> Iterator[Action]:
    """The queues of its definition; what a shovel declares for an exchange goes with its connection."""
    ends = ((link.shovel.source, sight, "source"), (link.shovel.destination, sight.destination, "destination"))
    for place, seen, end in ends:
        missing = f"missing at the {end}; declared durable"
        match place:
            case QueueSource(queue, arguments) | QueueDestination(queue, arguments) if seen is not None:
                yield _queue(seen, queue, arguments, missing=missing)
            case AddressSource(address) | AddressDestination(address) if seen is not None:
                found = addressed(address)
                if found is not None and (seen.declares_queue or seen.seen.queue is not None):
                    yield _queue(seen, found.name, EMPTY, missing=missing)
