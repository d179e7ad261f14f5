"""The objects that an exchange link keeps upstream: those that are wanted, compared with those that exist, become
steps.

`plan` prints the steps and a session carries them out, so neither can decide otherwise than the other.

Why: docs/decisions/0031-plan-and-run-agree.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from agent.core.fields import Table
from agent.core.model import Binding, ExchangeLink
from agent.core.rules import declarations, names
from agent.core.rules.hops import MATCH_ALL_BINDINGS, Difference, GroupedBinding, Route, Site, difference


class Verb(StrEnum):
    CREATE = "create"
    KEEP = "keep"
    DELETE = "delete"
    BIND = "bind"
    UNBIND = "unbind"


@dataclass(frozen=True)
class Wanted:
    """The objects that one link keeps upstream, by its definition and by the names of the two clusters."""

    link: ExchangeLink
    route: Route

    @cached_property
    def queue(self) -> str:
        return upstream_queue_name(self.link, self.route.upstream.vhost, self.route.downstream.cluster or "")

    @cached_property
    def queue_arguments(self) -> Table:
        return declarations.queue_arguments(self.link.settings)

    @cached_property
    def internal_arguments(self) -> Table:
        """The arguments of an internal exchange of the plugin's own type."""
        return declarations.internal_arguments(self.link.settings.max_hops, self.route.downstream)

    @cached_property
    def canary(self) -> str | None:
        return names.canary(self.link.remote_name, self.queue, self.route.upstream.vhost)

    def internal(self, letter: str) -> str:
        return names.internal_exchange(self.queue, letter)

    def groups(self, bindings: Iterable[Binding], letter: str) -> frozenset[GroupedBinding]:
        """The bindings upstream; `forward-unrouted` adds one that matches all messages."""
        everything = MATCH_ALL_BINDINGS.get(self.link.exchange.type) if self.link.settings.forward_unrouted else None
        return self.route.groups([*bindings, *([Binding(*everything)] if everything else [])], letter)


def upstream_queue_name(link: ExchangeLink, upstream_vhost: str, cluster: str) -> str:
    return names.upstream_queue(
        link.remote_name,
        upstream_vhost,
        downstream_exchange=link.name,
        downstream_vhost=link.vhost,
        downstream_cluster=cluster,
    )


@dataclass(frozen=True, slots=True)
class QueueSeen:
    messages: int
    consumers: int


@dataclass(frozen=True, slots=True)
class Known:
    """The bindings of a link at `site` to the internal exchange of this letter, as the link made them; AMQP offers no
    way to ask for them.

    `arguments` are those that its definition asked for then: an exchange of the plugin's type drops messages by them.
    """

    site: Site
    queue: str
    letter: str
    arguments: Table
    bound: frozenset[GroupedBinding] = frozenset()
    has_canary: bool = False
    left_out: frozenset[GroupedBinding] = frozenset()  # that the broker can't bind
    canary_is_refused: bool = False

    def serves(self, wanted: Wanted) -> bool:
        then, now = (self.site, self.queue, self.arguments), (wanted.route.upstream, wanted.queue)
        return then == (*now, wanted.internal_arguments)


@dataclass(frozen=True, slots=True)
class Seen:
    """The objects that exist upstream.

    `unusable` are letters whose internal exchange has other arguments, or a type that the broker no longer knows:
    trying to declare it showed that. `remembers_offset`: the queue exists that remembers how far a stream was copied.
    """

    exchange_exists: bool = False
    queue: QueueSeen | None = None
    letters: tuple[str, ...] = ()
    canary_exists: bool = False
    known: Known | None = None
    unusable: frozenset[str] = field(default=frozenset())
    remembers_offset: bool = False

    def without(self, letter: str) -> Seen:
        """The same, and that the internal exchange of this letter is unusable."""
        return replace(self, unusable=self.unusable | {letter})


@dataclass(frozen=True, slots=True)
class EnsureExchange:
    verb: Verb


@dataclass(frozen=True, slots=True)
class EnsureQueue:
    verb: Verb


@dataclass(frozen=True, slots=True)
class EnsureInternal:
    """The internal exchange of this letter serves from now on; `bound` is what is known to be bound to it."""

    verb: Verb
    letter: str
    bound: frozenset[GroupedBinding] = frozenset()


@dataclass(frozen=True, slots=True)
class Connect:
    """Binds the queue to the internal exchange of this letter, and that to the upstream exchange.

    `bound` is known to be bound there already; `more_may_be` says that other bindings may exist. `left_out` can't be
    bound there.
    """

    letter: str
    bound: frozenset[GroupedBinding] = frozenset()
    more_may_be: bool = False
    left_out: frozenset[GroupedBinding] = frozenset()

    def change(self, wanted: Wanted, bindings: Iterable[Binding]) -> Difference:
        return difference(bound=self.bound, wanted=wanted.groups(bindings, self.letter) - self.left_out)


@dataclass(frozen=True, slots=True)
class DeleteInternal:
    letter: str
    why: str


@dataclass(frozen=True, slots=True)
class EnsureCanary:
    verb: Verb


Step = EnsureExchange | EnsureQueue | EnsureInternal | Connect | DeleteInternal | EnsureCanary

INTERRUPTED = "left over from a rebuild that was interrupted"
UNKNOWN = "replaced without a gap by {}, whose bindings are known"


def upstream_steps(wanted: Wanted, seen: Seen) -> tuple[Step, ...]:
    """The steps, in an order in which no message is lost on the way and none comes twice."""
    is_refused = seen.known is not None and seen.known.serves(wanted) and seen.known.canary_is_refused
    has_none = wanted.canary is None or is_refused
    canary = () if has_none else (EnsureCanary(_verb(exists=seen.canary_exists)),)
    return (
        EnsureExchange(_verb(exists=seen.exchange_exists)),
        EnsureQueue(_verb(exists=seen.queue is not None)),
        *_serve(wanted, seen),
        *canary,
    )


def _verb(*, exists: bool) -> Verb:
    return Verb.KEEP if exists else Verb.CREATE


def _serve(wanted: Wanted, seen: Seen) -> Iterator[Step]:
    """The steps that lead to one internal exchange with exactly the wanted bindings, and no other.

    Where both exist, a rebuild was interrupted, and it isn't known which of them is complete: both go on serving until
    one of them is, and then that one is replaced in its turn, since superfluous bindings can't be seen.
    """
    known, fit = seen.known, [letter for letter in seen.letters if letter not in seen.unusable]
    if known is not None and known.letter in fit and known.serves(wanted) and not _may_be_another(seen, known):
        bound = known.bound if seen.exchange_exists else frozenset()
        yield EnsureInternal(Verb.KEEP, known.letter, bound)
        yield Connect(known.letter, bound, left_out=known.left_out)
        if len(seen.letters) > 1:
            yield DeleteInternal(names.other_letter(known.letter), INTERRUPTED)
    elif len(seen.letters) > 1 and fit:
        yield EnsureInternal(Verb.KEEP, fit[0])
        yield Connect(fit[0], more_may_be=True)
        yield DeleteInternal(names.other_letter(fit[0]), INTERRUPTED)
        yield from _replace(fit[0])
    elif len(seen.letters) > 1:
        serving = known.letter if known is not None and known.letter in seen.letters else seen.letters[0]
        yield DeleteInternal(names.other_letter(serving), INTERRUPTED)
        yield from _replace(serving)
    elif seen.letters:
        yield from _replace(seen.letters[0])
    else:
        yield EnsureInternal(Verb.CREATE, names.LETTERS[0])
        yield Connect(names.LETTERS[0])


def _may_be_another(seen: Seen, known: Known) -> bool:
    """True if the upstream exchange may have been deleted and created again, so that its bindings are unknown."""
    return seen.exchange_exists and known.has_canary and not seen.canary_exists


def _replace(serving: str) -> Iterator[Step]:
    new = names.other_letter(serving)
    yield EnsureInternal(Verb.CREATE, new)
    yield Connect(new)
    yield DeleteInternal(serving, UNKNOWN.format(new))
