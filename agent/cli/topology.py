"""`topology`: where messages go in a federation of several clusters, from their agents' configurations alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import combinations, groupby
from pathlib import Path
from typing import Any

from agent.cli import output
from agent.core.text import counted, listed
from agent.core.topology.findings import Arrival, Part, Reduction, TopologyFindings, examine, ranges
from agent.core.topology.graph import Carrier, Graph, Hop, as_dot, as_svg, carrier_label, end_label, label
from agent.core.topology.members import (
    Address,
    Member,
    UnknownUpstream,
    carriers_of,
    graph_of,
    name_clusters,
    names_of,
    unknown_upstreams,
)
from agent.definitions.sources.load import Configuration, load_configuration
from agent.errors import UsageError

MOST_SHOWN = 20  # of one kind of finding, in text
_PORT = 5672
_listed = partial(listed, most=MOST_SHOWN)
_TIMES = {0: "never", 1: "once", 2: "twice"}  # an exchange gets a message


def show_topology(paths: Sequence[Path], exchanges: Sequence[str], known_as: Sequence[str], *, format_: str) -> bool:
    """Returns True if each message arrives once wherever it could."""
    files = {path.resolve(): path for path in paths}.values()
    configurations = [load_configuration(str(path), environment=os.environ, strict=False) for path in files]
    members = [
        Member(
            each.settings.agent.group or "",
            each.settings.downstream.uris,
            each.definitions,
            each.states,
            source=each.source,
        )
        for each in configurations
    ]
    members = _with_addresses(_parsed(known_as), name_clusters(members))
    graph, carriers = graph_of(members, exchanges), carriers_of(members)
    if not graph.hops and not carriers:
        raise UsageError(
            "these files define no link whose names are known: give exchanges that policies match with "
            "--exchange NAME, or list a definitions export under `definitions.files`"
        )
    strangers = unknown_upstreams(members, exchanges)
    open_ones = [each for each in strangers if each.may_be]
    found = None if open_ones else examine(graph)
    match format_:
        case "dot":
            output.say(output.Ready(as_dot(graph, carriers)))
        case "svg":
            output.say(output.Ready(as_svg(graph, carriers)))
        case "json":
            output.say_json(_as_json(graph, carriers, strangers, found))
        case _:
            for line in _lines(graph, carriers, strangers, found):
                output.say(line)
    output.complain(*_unknown(members, open_ones), *_notes(configurations, members))
    return found is not None and found.is_right


def _parsed(given: Sequence[str]) -> dict[str, list[Address]]:
    found: dict[str, list[Address]] = {}
    for each in given:
        cluster, is_given, address = each.rpartition("=")
        host, _, port = address.rpartition(":") if address.rpartition(":")[2].isdigit() else (address, "", str(_PORT))
        if not is_given or not cluster or not host:
            raise UsageError(f"--address is CLUSTER=HOST[:PORT], such as dc2=rabbit.dc2.example:5672, not {each!r}")
        found.setdefault(cluster, []).append((host.strip("[]").lower(), int(port)))
    return found


def _with_addresses(given: Mapping[str, list[Address]], members: Sequence[Member]) -> list[Member]:
    """Members with the addresses that are given for their clusters."""
    found: dict[str, list[Address]] = {}
    for called, addresses in given.items():
        clusters = {member.cluster for member in members if member.cluster == called}
        clusters = clusters or {member.cluster for member in members if called in names_of(member)}
        if len(clusters) != 1:
            known = ", ".join(sorted({member.cluster for member in members}))
            raise UsageError(f"--address names the cluster {called!r}, but these files have {known}")
        cluster = clusters.pop()
        if cluster != called and any(member.is_guessed for member in members if member.cluster == cluster):
            raise UsageError(
                f"--address names {called!r}, but this file counts as one of several of the cluster {cluster}: give "
                "agents of one cluster the same agent.group, and those of another cluster another one"
            )
        found.setdefault(cluster, []).extend(addresses)
    for (cluster, addresses), (other, others) in combinations(found.items(), 2):
        for host, port in set(addresses).intersection(others):
            raise UsageError(
                f"--address says that {cluster} and {other} are both {host}:{port}: give each its own address, or, "
                "where their agents stand beside one cluster, the same agent.group"
            )
    return [replace(member, known_as=tuple(found.get(member.cluster, ()))) for member in members]


def _unknown(members: Sequence[Member], strangers: Sequence[UnknownUpstream]) -> Iterator[str]:
    """The options or settings that are needed before anything can be decided."""
    if not strangers:
        return
    guessed = sorted({member.cluster for member in members if member.is_guessed})
    doubtful = sorted({cluster for stranger in strangers for cluster in stranger.may_be}.difference(guessed))
    if doubtful:
        given = " ".join(f"--address {cluster}=HOST:PORT" for cluster in doubtful[:MOST_SHOWN])
        yield f"give the address that others use, as {given}"
    for cluster in guessed:
        files = _listed([member.source for member in members if member.cluster == cluster])
        yield (
            f"{files} count as agents of one cluster, {cluster}, but may be of several: agents of one cluster need the "
            "same agent.group and the same links, those of another cluster another group"
        )


def _notes(configurations: Sequence[Configuration], members: Sequence[Member]) -> Iterator[str]:
    """Remarks on what the files don't show."""
    apart = [member for member in members if member.is_apart]
    if apart:
        yield (
            f"{_listed([member.source for member in apart])} have no agent.group and a downstream address that other "
            "files have too: each counts as one for a cluster of its own, called by its file. Agents of one cluster "
            "need the same agent.group"
        )
    for configuration in configurations:
        if configuration.settings.sources.management:
            yield (
                f"{configuration.source}: what the downstream's HTTP API defines isn't counted; list a definitions "
                "export under `definitions.files`"
            )


def _lines(
    graph: Graph, carriers: Sequence[Carrier], strangers: Sequence[UnknownUpstream], found: TopologyFindings | None
) -> Iterator[str]:
    yield f"{counted(len(graph.nodes), 'exchange')}, {counted(len(graph.hops), 'link')}"
    for hop in graph.hops:
        yield f"  {_way(hop)}  max-hops {hop.max_hops}"
    if carriers:
        found_carriers = counted(len(carriers), "queue link or shovel", "queue links and shovels")
        yield f"{found_carriers}: messages are moved, none is copied"
    for carrier in carriers:
        yield f"  {end_label(carrier.source)} → {end_label(carrier.destination)}  {carrier_label(carrier)}"
    yield from _unrecognized(strangers)
    for number, part in enumerate(found.parts if found else (), 1):
        if found and len(found.parts) > 1:
            yield f"part {number} of {len(found.parts)}: {label(part.graph.nodes[0])} and what is linked with it"
        yield from _reached(part)
        yield from _verdict(part)


def _unrecognized(strangers: Sequence[UnknownUpstream]) -> Iterator[str]:
    for stranger in strangers[:MOST_SHOWN]:
        yield f"no file's downstream is known as {stranger.address}, an upstream of {_listed(stranger.upstream_of)}"
    if len(strangers) > MOST_SHOWN:
        more = counted(len(strangers) - MOST_SHOWN, "more such address", "more such addresses")
        yield f"{more}: --format json has all"
    for stranger in [each for each in strangers if each.may_be][:MOST_SHOWN]:
        yield f"undecided: {stranger.address} may be another address of {_either(stranger.may_be)}"


def _either(clusters: Sequence[str]) -> str:
    return " or ".join(clusters) if len(clusters) <= MOST_SHOWN else f"one of {len(clusters):,} clusters"


def _reached(part: Part) -> Iterator[str]:
    """A line for each publisher."""
    by_publisher = groupby(part.arrivals or (), key=lambda arrival: arrival.publisher)
    for shown, (publisher, arrivals) in enumerate(by_publisher):
        if shown == MOST_SHOWN:
            yield "  more publishers: --format json has all"
            return
        yield f"  published at {label(publisher)}: {_grouped(list(arrivals))}"


def _grouped(arrivals: list[Arrival]) -> str:
    counts = sorted({each.copies for each in arrivals}, key=lambda count: (count != 1, count))
    return "; ".join(
        f"{_TIMES.get(count, f'{count} times')} at "
        f"{_listed([label(each.subscriber) for each in arrivals if each.copies == count])}"
        for count in counts
    )


def _verdict(part: Part) -> Iterator[str]:
    if part.arrivals is None:
        yield "max-hops too large: messages are copied so often that counting was given up"
    if part.never:
        yield f"max-hops too small: {_pairs(len(part.never))} get nothing"
    if part.repeated:
        yield f"max-hops too large: {_pairs(len(part.repeated))} get messages more than once"
    for hop in part.to_themselves[:MOST_SHOWN]:
        yield f"the link {_way(hop)} is from an exchange to itself: correct its URI"
    if part.is_right:
        yield "right: every message arrives once at each exchange that it can get to"
    elif part.arrivals is None or part.never or part.repeated:
        yield from _advice(part)
    if part.is_one_way_ring and part.fragile:
        yield "a ring in one direction: if any one of its links is down, others get nothing over it"
    else:
        for hop in part.fragile[:MOST_SHOWN]:
            yield f"without the link {_way(hop)} others get nothing over it either"
        if len(part.fragile) > MOST_SHOWN:
            yield f"{counted(len(part.fragile) - MOST_SHOWN, 'more such link')}: --format json has all"


def _pairs(count: int) -> str:
    return "1 pair of exchanges" if count == 1 else f"{count} pairs of exchanges"


def _advice(part: Part) -> Iterator[str]:
    if part.fitting:
        yield f"set max-hops to {ranges(part.fitting, unlimited_from=part.longest)} for all links: messages arrive once"
        return
    yield "no max-hops for all links brings every message once: there are several ways, of different length"
    for remedy in part.remedies[:MOST_SHOWN]:
        of_it = f"{remedy.of_it} for the link {_way(remedy.hop)}"
        yield f"  set max-hops to {of_it}, to {remedy.max_hops} for all others: messages arrive once"
    if part.reduction:
        yield _with_fewer_links(part, part.reduction)
    if part.missing:
        yield f"  add {_links(part.missing)}, and set max-hops to 1 for all links: messages arrive once"


def _with_fewer_links(part: Part, reduction: Reduction) -> str:
    max_hops = ranges(reduction.fitting, unlimited_from=part.longest)
    if reduction.ring:
        way = " → ".join(label(node) for node in (*reduction.ring[:MOST_SHOWN], reduction.ring[0]))
        if len(reduction.ring) > MOST_SHOWN:
            way = f"from {label(reduction.ring[0])} to {label(reduction.ring[1])} and on"
        return f"  use one direction only, {way}, and set max-hops to {max_hops}: messages arrive once"
    return f"  remove {_links(reduction.left_out)}, and set max-hops to {max_hops} for all others: messages arrive once"


def _links(hops: Sequence[Hop]) -> str:
    return f"{'the link' if len(hops) == 1 else 'the links'} {_listed([*map(_way, hops)])}"


def _way(hop: Hop) -> str:
    return f"{label(hop.upstream)} → {label(hop.downstream)}"


def _as_json(
    graph: Graph, carriers: Sequence[Carrier], strangers: Sequence[UnknownUpstream], found: TopologyFindings | None
) -> dict[str, Any]:
    return {
        "right": found is not None and found.is_right,
        "decided": found is not None,
        "exchanges": [asdict(node) for node in graph.nodes],
        "links": [_link(hop) | {"max_hops": hop.max_hops} for hop in graph.hops],
        "carriers": [asdict(carrier) for carrier in carriers],
        "unknown_upstreams": [asdict(stranger) for stranger in strangers],
        "parts": [_part(part) for part in found.parts] if found else [],
    }


def _part(part: Part) -> dict[str, Any]:
    return {
        "exchanges": [asdict(node) for node in part.graph.nodes],
        "right": part.is_right,
        "arrivals": None
        if part.arrivals is None
        else [
            {"from": asdict(each.publisher), "to": asdict(each.subscriber), "copies": each.copies}
            for each in part.arrivals
        ],
        "fitting_max_hops": list(part.fitting),
        "largest_tried": part.longest,
        "remedies": [
            {"link": _link(remedy.hop), "max_hops_of_it": remedy.of_it, "max_hops_of_others": remedy.max_hops}
            for remedy in part.remedies
        ],
        "fewer_links": None
        if part.reduction is None
        else {
            "remove": [_link(hop) for hop in part.reduction.left_out],
            "fitting_max_hops": list(part.reduction.fitting),
            "one_way_ring": [asdict(node) for node in part.reduction.ring],
        },
        "missing_links": [_link(hop) for hop in part.missing],
        "links_to_themselves": [_link(hop) for hop in part.to_themselves],
        "fragile_links": [_link(hop) for hop in part.fragile],
    }


def _link(hop: Hop) -> dict[str, Any]:
    return {"upstream": asdict(hop.upstream), "downstream": asdict(hop.downstream)}
