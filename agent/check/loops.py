"""Links that bring messages back to where they came from, or bring them twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from agent.check.context import BrokerFacts, CheckContext, LinkEnds
from agent.check.findings import Finding, Topic
from agent.core.addresses.rabbitmq_address import node_at
from agent.core.model import (
    AddressDestination,
    AddressSource,
    ExchangeDestination,
    ExchangeLink,
    ExchangeSource,
    QueueLink,
    ShovelPlace,
)
from agent.core.topology.findings import repeated
from agent.core.topology.graph import CarrierEnd, Graph, Hop, Node, TooManyCopiesError

LONGEST: Final = 10.0  # seconds of CPU time
MOST_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Transfer:
    """From where to where a link brings messages; `max_hops` is None where no hop rule holds."""

    label: str
    source: CarrierEnd
    destination: CarrierEnd
    max_hops: int | None = None


async def judge_loops(context: CheckContext) -> list[Finding]:
    """Runs beside the event loop, as it takes long."""
    transfers = [found for link in context.links if (found := _transfer(link, context)) is not None]
    ends = time.monotonic() + LONGEST
    return await asyncio.to_thread(lambda: list(find_loops(transfers, lambda: time.monotonic() < ends)))


def _transfer(each: LinkEnds, context: CheckContext) -> Transfer | None:
    """None where its brokers aren't known, or the places differ from message to message."""
    source, destination = context.broker(each.source), context.broker(each.destination)
    link = each.link
    # A queue link takes messages only for consumers, so links in both directions are intended.
    if source is None or destination is None or isinstance(link, QueueLink):
        return None
    if isinstance(link, ExchangeLink):
        start, end = _end(source, "exchange", link.remote_name), _end(destination, "exchange", link.name)
        return Transfer(each.label, start, end, link.settings.max_hops)
    at, to = _place(source, link.shovel.source), _place(destination, link.shovel.destination)
    return None if at is None or to is None else Transfer(each.label, at, to)


def _place(broker: BrokerFacts, place: ShovelPlace) -> CarrierEnd | None:
    if isinstance(place, AddressSource | AddressDestination):
        return _end(broker, *node_at(place.address))
    if isinstance(place, ExchangeSource | ExchangeDestination):
        return None if place.exchange is None else _end(broker, "exchange", place.exchange)
    return _end(broker, "queue", place.queue)


def _end(broker: BrokerFacts, kind: str, name: str) -> CarrierEnd:
    return CarrierEnd(broker.cluster or broker.where, broker.vhost, kind, name)


def find_loops(transfers: Iterable[Transfer], goes_on: Callable[[], bool] = lambda: True) -> Iterator[Finding]:
    """`goes_on` is asked before each set of connected exchanges, which takes a second at most."""
    transfers = tuple(transfers)
    with_hops = [each for each in transfers if each.max_hops is not None]
    yield from _repeats(with_hops, goes_on)
    yield from (_to_itself(each) for each in with_hops if each.source == each.destination)
    for cycle in _cycles(each for each in transfers if each.max_hops is None):
        places = [*(_named(each.source) for each in cycle[:MOST_SHOWN]), _named(cycle[0].source)]
        yield Finding.error(
            Topic.LOOP,
            places[0],
            f"messages move in a circle without end: {' → '.join(places)}",
            "remove one of these shovels or queue links",
            tuple(each.label for each in cycle[:MOST_SHOWN]),
        )


def _to_itself(transfer: Transfer) -> Finding:
    return Finding.error(
        Topic.LOOP,
        _named(transfer.destination),
        "the upstream is the downstream itself, in the same vhost and with the same exchange: the link would only drop "
        "messages",
        "correct the upstream's URI; where it is another cluster, give it another name (rabbitmqctl set_cluster_name)",
        (transfer.label,),
    )


def _repeats(transfers: Iterable[Transfer], goes_on: Callable[[], bool]) -> Iterator[Finding]:
    labels: dict[tuple[Node, Node], str] = {}
    hops = []
    for each in transfers:
        hop = Hop(_node(each.source), _node(each.destination), each.max_hops or 1)
        labels[hop.upstream, hop.downstream] = each.label
        if hop.upstream != hop.downstream:
            hops.append(hop)
    meshed = (part for part in Graph(tuple(hops)).parts if len(part.hops) >= len(part.nodes))  # in a tree none repeats
    for part in meshed:
        if not goes_on():
            message = "not all were examined for messages that arrive twice: it takes too long"
            fix = "`federation-agent topology` examines them without a limit of time"
            yield Finding.note(Topic.LOOP, "links", message, fix)
            return
        involved = tuple(sorted({labels[hop.upstream, hop.downstream] for hop in part.hops})[:MOST_SHOWN])
        try:
            found = [each for each, _ in zip(repeated(part), range(MOST_SHOWN), strict=False)]
        except TooManyCopiesError:
            others = f"{len(part.nodes) - 1:,} more"
            message = f"so many copies arrive here and at {others} that they can't be counted"
            yield _repeated(min(part.nodes), message, involved)
            continue
        for arrival in found:
            message = f"messages published at {_exchange(arrival.publisher)} arrive {arrival.copies} times"
            yield _repeated(arrival.subscriber, message, involved)


def _repeated(at: Node, message: str, links: tuple[str, ...]) -> Finding:
    fix = "lower max-hops: `federation-agent topology` shows which values are right"
    return Finding.warning(Topic.LOOP, _exchange(at), message, fix, links)


def _cycles(transfers: Iterable[Transfer]) -> Iterator[list[Transfer]]:
    """One for each set of places that lead to each other."""
    leaving: dict[CarrierEnd, list[Transfer]] = {}
    for each in transfers:
        leaving.setdefault(each.source, []).append(each)
    done: set[CarrierEnd] = set()
    for start in sorted(leaving):
        if start not in done and (found := _shortest_cycle(start, leaving)):
            done |= {each.source for each in found}
            yield found


def _shortest_cycle(start: CarrierEnd, leaving: Mapping[CarrierEnd, list[Transfer]]) -> list[Transfer]:
    """Empty if there is none."""
    ahead: list[list[Transfer]] = [[each] for each in leaving.get(start, ())]
    seen = {start}
    for path in ahead:
        end = path[-1].destination
        if end == start:
            return path
        if end not in seen:
            seen.add(end)
            ahead += [[*path, each] for each in leaving.get(end, ())]
    return []


def _named(end: CarrierEnd) -> str:
    return f"{end.kind} {end.name!r} in vhost {end.vhost!r} of {end.cluster}"


def _node(end: CarrierEnd) -> Node:
    return Node(end.cluster, end.vhost, end.name)


def _exchange(node: Node) -> str:
    return _named(CarrierEnd(node.cluster, node.vhost, "exchange", node.exchange))
