"""Reads the bindings of federated exchanges, and static ones."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from agent.core.model import (
    Binding,
    Link,
)
from agent.definitions.document.findings import quoted
from agent.definitions.sources.downstream_state import Unusable, binding, source_of
from agent.definitions.sources.load import Configuration
from agent.downstream.known_bindings import exchanges_of
from agent.downstream.read_definitions import left_as_it_was
from agent.downstream.reading import AT_ONCE, MOST_SILENT, Bindings, Parameters, Reading
from agent.errors import BrokerError, Problem, TransientError
from agent.management.client import ManagementClient
from agent.management.transport import TooLargeError
from agent.slices import steps_in_slices

ASKED_ONE_BY_ONE = 20


@dataclass(frozen=True, slots=True)
class BindingsRead:
    """`bindings` lacks exchanges whose bindings can't be read; unusable bindings are omitted."""

    bindings: Bindings
    problems: tuple[Problem, ...] = ()


async def read_bindings(configuration: Configuration, reading: Reading, links: Collection[Link]) -> BindingsRead:
    """Read the bindings of federated exchanges only, and add static ones."""
    wanted = exchanges_of(links)
    found = BindingsRead({key: reading.bindings.get(key, ()) for key in wanted})
    if configuration.settings.downstream.management:
        async with ManagementClient(configuration.settings.downstream.management) as client:
            found = await _ask_for_bindings(client, wanted, reading)
    static = {key: reading.definitions.of(key[0]).bindings.get(key[1], ()) for key in wanted}
    bindings = {key: (*of_exchange, *static[key]) for key, of_exchange in found.bindings.items()}
    return BindingsRead(bindings, found.problems)


async def _ask_for_bindings(
    client: ManagementClient, wanted: Collection[tuple[str, str]], reading: Reading
) -> BindingsRead:
    found: dict[tuple[str, str], tuple[Binding, ...]] = {key: () for key in wanted if _has_static(reading, key)}
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


def _has_static(reading: Reading, source: tuple[str, str]) -> bool:
    """True if there are static bindings, even if the vhost is invisible."""
    vhost, name = source
    return bool(reading.definitions.of(vhost).bindings.get(name))


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
