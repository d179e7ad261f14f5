"""Builds what one exchange link keeps upstream: queue, internal exchange and bindings, in few round trips.

Why: docs/decisions/0031-plan-and-run-agree.md, docs/decisions/0032-few-round-trips.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

import structlog

from agent.amqp.connection_pool import Shared
from agent.amqp.declares import Opener, exists
from agent.core.links.upstream_steps import (
    Connect,
    DeleteInternal,
    EnsureInternal,
    QueueSeen,
    Seen,
    Step,
    Verb,
    Wanted,
    upstream_steps,
)
from agent.core.model import Binding
from agent.core.rules import names
from agent.core.rules.hops import GroupedBinding, difference
from agent.errors import BrokerError, PermanentError, TransientError
from agent.links.consumer import ServedElsewhereError
from agent.links.exchange import upstream_objects
from agent.links.exchange.binder import Binder, LeftOut
from agent.links.exchange.upstream_objects import Canary, InternalExchanges, UpstreamState
from agent.tasks import gather_both

AT_ONCE: Final = 200  # bindings that are asserted before a new one has its turn
EXCHANGE: Final = "the upstream exchange"
EXCHANGE_OR_CANARY: Final = f"{EXCHANGE}, or the exchange that shows whether it was deleted,"

log = structlog.get_logger()


class Builder:
    """Builds, for one session, what a link keeps upstream. `prepare` comes first, then `complete`, then `replace`, then
    the other methods; all may raise BrokerError."""

    __slots__ = (
        "_asserted_next", "_binder", "_canary", "_channels", "_exchanges", "_has_tried_canary", "_is_sure", "_letter",
        "_link", "_more_may_be", "_queue", "_spare", "_steps", "_up", "_wanted", "built", "is_native",
    )  # fmt: skip

    def __init__(
        self, wanted: Wanted, *, control: Shared, built: UpstreamState, internal: InternalExchanges, spare: Opener
    ) -> None:
        """`spare` opens a connection that may be lost."""
        self._wanted = wanted
        self._link = wanted.link
        self._queue = wanted.queue
        self._up = control.connection
        self._channels = control.channels
        self.built = built
        self._exchanges = internal
        self._spare = spare
        self._canary = Canary(self._up, wanted.link.remote_name, wanted.queue)
        self.is_native = False
        self._letter = names.LETTERS[0]
        self._more_may_be = False  # bound to it than is known: until it is replaced
        self._is_sure = False  # that all of it was bound while this link held the queue
        self._steps: list[Step] = []  # that are left to do
        self._binder: Binder | None = None
        self._asserted_next: list[GroupedBinding] = []
        self._has_tried_canary = False

    @property
    def replaces(self) -> bool:
        """True if an internal exchange is still to be deleted, because another one replaces it."""
        return any(isinstance(step, DeleteInternal) for step in self._steps)

    @property
    def bound(self) -> int:
        """The number of groups that are bound."""
        return len(self.built.bound)

    async def prepare(self) -> None:
        """Ensure the upstream exchange, the queue, and an internal exchange to bind to."""
        if names.are_too_long(self._queue):
            raise PermanentError(
                "no broker takes a name as long as that of the internal exchange there, "
                f"{self._wanted.internal(self._letter)!r}: use shorter names for exchange, vhost or cluster",
                where=self._up.where,
            )
        seen: Seen | None = await self._ensure_and_look()
        while seen is not None:
            self._steps = list(upstream_steps(self._wanted, seen))
            seen = await self._begin(seen)

    async def _ensure_and_look(self) -> Seen:
        """Ensure exchange and queue, and look at the same time what else exists: these two are the same in every
        case."""
        built, where = self.built, self._wanted.route.upstream
        letters, ((is_new, has_canary), (consumers, built.note)) = await gather_both(
            self._existing_letters(), self._ensure_both()
        )
        if consumers:
            raise ServedElsewhereError(
                f"{self._up.where}: {self._queue!r} has {consumers} consumer(s) already", self._queue
            )
        if (built.site, built.queue) != (where, self._queue):
            built.letter = None
            built.forget_restored()
        known = built.known
        if is_new:  # it has forgotten what was bound to the one before it
            if known.bound if known is not None else letters:  # or there was none before it
                self._note_missing(EXCHANGE)
            built.bound = frozenset()
        elif known is not None and built.has_canary and not has_canary:
            self._note_missing(EXCHANGE_OR_CANARY)
        built.has_canary = has_canary and known is not None
        built.site = where
        return Seen(not is_new, QueueSeen(0, consumers), letters, has_canary, known)

    async def _ensure_both(self) -> tuple[tuple[bool, bool], tuple[int, str]]:
        # As arguments of a coroutine that is cancelled before it begins, the two would never be awaited.
        return await gather_both(
            self._look_at_exchange(),
            upstream_objects.ensure_queue(self._up, self._queue, self._link.settings, spare=self._spare),
        )

    async def _look_at_exchange(self) -> tuple[bool, bool]:
        """Ensure the upstream exchange. Return two flags: it had to be created, and the canary shows that it was not
        deleted since.

        One request comes after the other: links that begin at the same time have no more channels than `pool` counts
        on.
        """
        is_new, built = await self._ensure_exchange(), self.built
        if is_new or built.letter is None or not built.has_canary:
            return is_new, False
        return False, await self._canary.survived()

    async def _begin(self, seen: Seen) -> Seen | None:
        """Do the steps up to the first bindings; return a corrected view of what exists if one of them shows it to be
        different."""
        while self._steps and not isinstance(step := self._steps[0], Connect | DeleteInternal):
            try:
                await self._take_step()
            except BrokerError:
                # One that is to be kept may have other arguments, or a type that isn't known since the plugin was
                # disabled.
                if not isinstance(step, EnsureInternal) or step.verb is Verb.CREATE or self._up.is_closed:
                    raise
                return seen.without(step.letter)
        return None

    async def complete(self, bindings: Iterable[Binding], *, holds_queue: bool) -> None:
        """Bind the queue and the groups; raise PermanentError if topic permissions allow no routing key."""
        self._is_sure = holds_queue and not any(isinstance(step, Connect) and step.bound for step in self._steps)
        while self._steps and not isinstance(self._steps[0], DeleteInternal):
            await self._take_step(bindings)
        denied = next((each for each in self.built.left_out if each.advice), None)
        if denied is not None and not self.built.bound and not self._steps:  # what served before goes on until then
            why = f"topic permissions allow no routing key of {self._link.remote_name!r}. {denied.advice}"
            raise PermanentError(why, where=self._up.where, facts=denied.failure)

    async def replace(self, bindings: Iterable[Binding], *, still: Callable[[], None]) -> None:
        """Delete the internal exchange that served before. Only the agent that holds the queue may do that, and `still`
        raises BrokerError if this one no longer does: another agent that takes the link over at the same moment may
        have built it just now, and be the one whose messages come through it."""
        if self._steps and not self._is_sure:
            await self._bind_again()
        while self._steps:
            still()
            await self._take_step(bindings)

    async def _bind_again(self) -> None:
        """Bind the queue and the groups again. Another agent that held the queue for a moment may have deleted what it
        had built or knew. The internal exchange may then have been declared here since, with nothing bound to it.
        Nobody else deletes anything while this link holds the queue."""
        if self._binder is not None:
            queue_bound = upstream_objects.bind_queue(self._up, self._queue, self._internal)
            _, left_out = await gather_both(queue_bound, self._binder.bind(self.built.bound))
            self._leave_out(left_out)

    def _leave_out(self, left_out: Iterable[LeftOut]) -> None:
        self.built.left_out += tuple(left_out)
        self.built.bound -= {each.group for each in left_out}

    async def _take_step(self, bindings: Iterable[Binding] = ()) -> None:
        """Do the next step. Exchange and queue exist by now, and the canary is placed while the link runs."""
        match self._steps.pop(0):
            case EnsureInternal(_, letter, bound):
                name = self._wanted.internal(letter)
                self.is_native = await self._exchanges.declare(name, self._wanted.internal_arguments)
                self._serve(letter, bound)
            case Connect(letter, more_may_be=more_may_be):
                name, self._more_may_be = self._wanted.internal(letter), more_may_be
                await gather_both(upstream_objects.bind_queue(self._up, self._queue, name), self.follow(bindings))
            case DeleteInternal(letter):
                await upstream_objects.delete_exchange(self._up, self._wanted.internal(letter))

    def _serve(self, letter: str, bound: frozenset[GroupedBinding]) -> None:
        built, wanted = self.built, self._wanted
        now = letter, wanted.queue, wanted.internal_arguments
        if (built.letter, built.queue, built.arguments) != now:
            built.letter = None  # until everything is bound
        self._letter, built.queue, built.arguments = now
        built.bound = bound
        built.left_out = ()
        built.doubtful = list(bound)
        self._binder = Binder(self._up, self._channels, source=self._link.remote_name, destination=self._internal)

    async def follow(self, bindings: Iterable[Binding]) -> None:
        """Bring the bindings upstream in step; only what differs is sent."""
        built, binder = self.built, self._binder
        if binder is None:
            return
        wanted = self._wanted.groups(bindings, self._letter)
        change = difference(bound=built.bound, wanted=wanted)
        built.letter = None  # until it is complete, what is bound isn't known
        # To ask again for what is refused costs a channel each, so only the next session does.
        refused = {each.group: each for each in built.left_out if each.is_refused and each.group in wanted}
        left_out = await binder.bind([group for group in change.bind if group not in refused])
        built.left_out = (*refused.values(), *left_out)
        self._more_may_be |= bool(await binder.unbind(change.unbind))
        built.bound = wanted - {each.group for each in built.left_out}
        if not self._more_may_be:
            built.letter = self._letter

    @property
    def canary(self) -> str | None:
        """The name of the canary, which is deleted with the upstream exchange; None if there is none."""
        return self._canary.name if self.built.has_canary else None

    @property
    def internal(self) -> str | None:
        """The name of the internal exchange; None if it is too long to ask for."""
        name = self._internal
        return name if names.can_be_asked_for(name, self._up.vhost) else None

    @property
    def must_assert(self) -> bool:
        """True if bindings have to be asserted, since nothing else shows that the upstream exchange was deleted."""
        return not (self.built.has_canary or self._canary.is_needless)

    @property
    def assertable(self) -> int:
        """The number of bindings to assert in the background."""
        return 0 if self.must_assert else self.bound

    @property
    def doubtful(self) -> int:
        """The number of groups that were bound, and may be bound no longer."""
        return len(self.built.doubtful)

    @property
    def lacks_canary(self) -> bool:
        """True if a canary may be placed, and none was tried yet."""
        return not (self.built.has_canary or self._has_tried_canary or self._canary.is_needless)

    async def ensure_canary(self) -> None:
        """Place the canary of a link that runs already, if it lacks one."""
        if not self.lacks_canary:
            return
        self._has_tried_canary = True
        self.built.has_canary = await self._canary.place()
        self.built.canary_note = self._canary.note
        if self.built.has_canary:
            self.built.doubtful = list(self.built.bound)

    async def remove_rivals(self) -> None:
        """Delete what another agent that lost the queue to this link has built: nobody knows what is bound to it."""
        self.built.may_have_rival = False
        other = self._wanted.internal(names.other_letter(self._letter))
        if await exists(self._up, "exchange", other, spare=self._spare):
            await self._bind_again()
            await upstream_objects.delete_exchange(self._up, other)

    def _note_missing(self, what: str) -> None:
        link, reason = self._link, f"{what} was missing"
        labels = {"link": link.id, "vhost": link.vhost, "name": link.name, "upstream": link.upstream}
        log.warning("bindings restored", **labels, reason=reason)
        self.built.restored = f"{reason}, and is bound again: what was published in between may be missing"
        self.built.restored_at = asyncio.get_running_loop().time()

    async def restore(self, missing: str) -> None:
        """Create the upstream exchange, its canary and its bindings again. It was deleted, and may exist again with
        nothing bound to it."""
        built, binder = self.built, self._binder
        if binder is None:
            return
        bound = built.bound
        built.letter = None  # until it is complete, what is bound isn't known
        self._note_missing(missing)
        await self._ensure_exchange()
        built.has_canary = await self._canary.place()
        built.canary_note, built.doubtful = self._canary.note, []
        self._leave_out(await binder.bind(bound))
        built.letter = self._letter

    async def assert_some(self, count: int, between: Callable[[], Awaitable[None]]) -> None:
        """Bind the next `count` groups again, in turn: a binding may have been removed.

        `between` does what can't wait until the end, and may change what should be bound.
        """
        if self._binder is None:
            return
        if not self.built.bound:
            await self._ensure_exchange()
        for at in range(0, count, AT_ONCE):
            await between()
            size = min(AT_ONCE, count - at)
            await self._assert(self._binder, self._next_groups(size))

    def _next_groups(self, count: int) -> list[GroupedBinding]:
        """The next groups to bind again, those in doubt first."""
        bound, doubtful = self.built.bound, self.built.doubtful
        taken = doubtful[-count:]
        del doubtful[-count:]
        if len(taken) < count:
            if not self._asserted_next:
                self._asserted_next = list(bound)
            more = count - len(taken)
            taken += self._asserted_next[-more:]
            del self._asserted_next[-more:]
        return [group for group in taken if group in bound]

    async def _assert(self, binder: Binder, groups: Collection[GroupedBinding]) -> None:
        try:
            left_out = await binder.bind_again(groups)
        except TransientError:
            if not await self._ensure_exchange():
                raise
            await self.restore(EXCHANGE)
        else:
            self._leave_out(left_out)
            if left_out:  # they may be bound all the same, and not to be unbound
                self._more_may_be, self.built.letter = True, None

    async def is_type_known(self) -> bool:
        """True if the type of the internal exchange is still known upstream. If the plugin was disabled there, it
        isn't, and publishing to the exchange that ours is bound to fails: the link has to be built again, with another
        type."""
        name = self._internal
        return not self.is_native or await self._exchanges.is_type_known(name, self._wanted.internal_arguments)

    def lost(self, what: str) -> TransientError:
        """The error that makes the link be built again."""
        return TransientError(f"internal exchange {self._internal!r} {what}: built again", where=self._up.where)

    async def depth(self) -> int | None:
        """The number of messages that are ready upstream; None before the internal exchange is declared."""
        return None if self._binder is None else await self._binder.depth(self._queue)

    @property
    def _internal(self) -> str:
        return self._wanted.internal(self._letter)

    async def _ensure_exchange(self) -> bool:
        name, like = self._link.remote_name, self._wanted.link.exchange
        return await upstream_objects.ensure_exchange(self._up, name, like, spare=self._spare)

    async def _existing_letters(self) -> tuple[str, ...]:
        first, second = names.LETTERS
        exist = await gather_both(
            exists(self._up, "exchange", self._wanted.internal(first), spare=self._spare),
            exists(self._up, "exchange", self._wanted.internal(second), spare=self._spare),
        )
        return tuple(letter for letter, is_there in zip(names.LETTERS, exist, strict=True) if is_there)
