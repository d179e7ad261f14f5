"""The bindings of federated exchanges: the last known, read, and followed with the broker's events. Reads and events
may overtake each other.

Why: docs/decisions/0028-bindings-from-events.md
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import structlog

from agent.amqp.broker_events import BINDING_EVENTS, BrokerEvent
from agent.core.model import Binding, Link, LinkKind
from agent.definitions.document.findings import quoted
from agent.definitions.sources.downstream_state import Unusable, binding, binding_of_event, source_of
from agent.definitions.sources.load import Configuration
from agent.downstream.listen import Listener, follow
from agent.downstream.reading import AT_ONCE, MOST_SILENT, Bindings, Parameters, Reading, left_as_it_was
from agent.errors import AgentError, BrokerError, Problem, TransientError
from agent.management.client import ManagementClient
from agent.management.transport import TooLargeError
from agent.slices import steps_in_slices
from agent.tasks import run_until_first

ASKED_ONE_BY_ONE: Final = 20
READ_AGAIN: Final = 1.0
MOST_CHANGES: Final = 100
GONE: Final = "binding.deleted"

log = structlog.get_logger()

Federated = tuple[str, str]
"""A vhost, and an exchange in it."""


def exchanges_of(links: Iterable[Link]) -> frozenset[Federated]:
    """The downstream exchanges of those links that copy bindings."""
    return frozenset((link.vhost, link.name) for link in links if link.kind is LinkKind.EXCHANGE)


@dataclass(frozen=True, slots=True)
class BindingChange:
    """The addition or removal of one binding."""

    source: Federated
    binding: Binding
    is_gone: bool = False


class KnownBindings:
    """A read that started later is newer, and changes since its start may be missing from its result."""

    def __init__(self) -> None:
        self._now = 0
        self._asking: dict[int, frozenset[Federated]] = {}
        self._asked_at: dict[Federated, int] = {}
        self._known: dict[Federated, frozenset[Binding]] = {}
        self._changes: list[tuple[int, BindingChange]] = []

    @contextmanager
    def reading(self, sources: Iterable[Federated] = ()) -> Iterator[int]:
        """Gives a reading of these exchanges its number. Changes are kept for it until it ends, however it ends."""
        self._now += 1
        number = self._now
        self._asking[number] = frozenset(sources)
        try:
            yield number
        finally:
            del self._asking[number]
            oldest = min(self._asking, default=self._now + 1)
            self._changes = [(at, change) for at, change in self._changes if at >= oldest]

    @property
    def asked(self) -> Collection[frozenset[Federated]]:
        """The exchanges that are being read, by reading: later changes may not be in the response."""
        return self._asking.values()

    def learn(
        self, number: int, found: Mapping[Federated, Iterable[Binding]]
    ) -> Mapping[Federated, frozenset[Binding]]:
        """Applies the result of a read and returns the current bindings, including those from later reads."""
        later: dict[Federated, list[BindingChange]] = defaultdict(list)
        for at, change in self._changes:
            if at >= number:
                later[change.source].append(change)
        for source, bindings in found.items():
            if number > self._asked_at.get(source, 0):
                self._asked_at[source] = number
                self._known[source] = frozenset(bindings)
                for change in later.get(source, ()):
                    self._apply(change)
        return {source: self._known[source] for source in found}

    def of(self, source: Federated) -> frozenset[Binding] | None:
        """The last known bindings; None if they were never read."""
        return self._known.get(source)

    def keep(self, sources: frozenset[Federated]) -> None:
        """Forgets the bindings of all other exchanges."""
        for source in self._known.keys() - sources:
            del self._known[source]
            self._asked_at.pop(source, None)

    def change(self, changes: Iterable[BindingChange]) -> Mapping[Federated, frozenset[Binding]]:
        """Applies changes in this order for exchanges whose bindings are known; returns all bindings of these."""
        changed: dict[Federated, frozenset[Binding]] = {}
        for change in changes:
            if self._asking:
                self._changes.append((self._now, change))
            if change.source in self._known:
                self._apply(change)
                changed[change.source] = self._known[change.source]
        return changed

    def _apply(self, change: BindingChange) -> None:
        known = self._known[change.source]
        self._known[change.source] = known - {change.binding} if change.is_gone else known | {change.binding}


@dataclass(frozen=True, slots=True)
class BindingsRead:
    """`bindings` lacks exchanges whose bindings can't be read; unusable bindings are omitted."""

    bindings: Bindings
    problems: tuple[Problem, ...] = ()


async def read_bindings(configuration: Configuration, reading: Reading, links: Collection[Link]) -> BindingsRead:
    """Read the bindings of federated exchanges only, and add static ones."""
    wanted = exchanges_of(links)
    static = {key: reading.definitions.of(key[0]).bindings.get(key[1], ()) for key in wanted}
    found = BindingsRead({key: reading.bindings.get(key, ()) for key in wanted})
    if configuration.settings.downstream.management:
        async with ManagementClient(configuration.settings.downstream.management) as client:
            found = await _ask_for_bindings(client, wanted, reading, static)
    bindings = {key: (*of_exchange, *static[key]) for key, of_exchange in found.bindings.items()}
    return BindingsRead(bindings, found.problems)


async def _ask_for_bindings(
    client: ManagementClient, wanted: Collection[Federated], reading: Reading, static: Bindings
) -> BindingsRead:
    found: dict[Federated, tuple[Binding, ...]] = {key: () for key in wanted if static[key]}  # of invisible vhosts, too
    problems: list[Problem] = []
    silent = 0
    for vhost in sorted({vhost for vhost, _ in wanted} & reading.states.keys()):
        names = [name for of_vhost, name in sorted(wanted) if of_vhost == vhost]
        unusable = Unusable(vhost)
        try:
            answers = await _answers_about_bindings(client, vhost, names)
        except BrokerError as error:
            silent += isinstance(error, TransientError)
            if silent > MOST_SILENT:
                raise
            problems.append(left_as_it_was(reading.broker, vhost, error))
            for name in names:
                found.pop((vhost, name), None)
            continue
        by_source = await steps_in_slices(_reading_bindings(answers, frozenset(names), unusable))
        found.update({(vhost, name): tuple(by_source.get(name, ())) for name in names})
        problems += unusable.problems(reading.broker)
    return BindingsRead(found, tuple(problems))


async def _answers_about_bindings(client: ManagementClient, vhost: str, names: Sequence[str]) -> Parameters:
    """The bindings of these exchanges. Few exchanges are requested one by one; for many, one response with all bindings
    is faster."""
    if len(names) > ASKED_ONE_BY_ONE:
        with suppress(TooLargeError):  # most may be of exchanges that aren't federated
            return await client.bindings(vhost)
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(name: str) -> Parameters:
        async with gate:
            return await client.bindings_from(vhost, name)

    return [answer for several in await asyncio.gather(*map(ask, names)) for answer in several]


def _reading_bindings(
    answers: Parameters, names: frozenset[str], unusable: Unusable
) -> Generator[None, None, dict[str, list[Binding]]]:
    found: dict[str, list[Binding]] = {}
    for answer in answers:
        if (source := source_of(answer)) in names:
            read = binding(answer)
            if isinstance(read, Binding):
                found.setdefault(source, []).append(read)
            else:
                key = answer.get("routing_key")
                key = quoted(str(key)) if key else "''"
                unusable.note(f"the binding with key {key} of exchange", source, str(read))
        yield
    return found


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
        listening = follow(self._listener, BINDING_EVENTS, self._note, on_begin=self._mark_all)
        await run_until_first(self._read_when_changed(), self._apply_changes(), listening)

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

    def _mark_all(self) -> None:
        """For changes while not subscribed."""
        self._mark(frozenset[Federated]().union(*self._sources()))

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
