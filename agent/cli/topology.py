"""`topology`: where messages go in a federation of several clusters, from their agents' configurations alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from agent.cli import output
from agent.core.topology.drawing import as_dot, as_svg, carrier_label, end_label, label
from agent.core.topology.findings import Arrival, Findings, Part, examine, ranges
from agent.core.topology.graph import Carrier, Graph
from agent.core.topology.members import Address, Directory, Member, carriers_of, graph_of
from agent.definitions.sources.load import Configuration, load_configuration
from agent.errors import UsageError

MOST_SHOWN = 20  # of one kind of finding, in text
_PORT = 5672
_TIMES = {0: "never", 1: "once", 2: "twice"}


def show_topology(paths: Sequence[Path], exchanges: Sequence[str], known_as: Sequence[str], *, format_: str) -> bool:
    """Returns whether each message arrives once wherever it could."""
    named = _known_as(known_as)
    configurations = [load_configuration(str(path), environment=os.environ, strict=False) for path in paths]
    members = [_member(each, named) for each in configurations]
    _require_known(named, members)
    graph, carriers = graph_of(members, exchanges), carriers_of(members)
    if not graph.hops and not carriers:
        raise UsageError(
            "these files define no link whose names are known: give exchanges that policies match with "
            "--exchange NAME, or list a definitions export under `definitions.files`"
        )
    found = examine(graph)
    match format_:
        case "dot":
            output.say(output.Ready(as_dot(graph, carriers)))
        case "svg":
            output.say(output.Ready(as_svg(graph, carriers)))
        case "json":
            output.say_json(_as_json(graph, carriers, found))
        case _:
            for line in _lines(graph, carriers, found):
                output.say(line)
    output.complain(*_notes(configurations, members))
    return found.is_right


def _member(configuration: Configuration, known_as: dict[str, list[Address]]) -> Member:
    settings = configuration.settings
    uris = settings.downstream.uris
    name = settings.agent.group or f"{uris[0].connect_host or configuration.source}:{uris[0].connect_port}"
    return Member(name, uris, configuration.definitions, configuration.states, tuple(known_as.get(name, ())))


def _known_as(given: Sequence[str]) -> dict[str, list[Address]]:
    found: dict[str, list[Address]] = {}
    for each in given:
        cluster, is_given, address = each.rpartition("=")
        host, _, port = address.rpartition(":") if address.rpartition(":")[2].isdigit() else (address, "", str(_PORT))
        if not is_given or not cluster or not host:
            raise UsageError(f"--address is CLUSTER=HOST[:PORT], such as dc2=rabbit.dc2.example:5672, not {each!r}")
        found.setdefault(cluster, []).append((host.strip("[]").lower(), int(port)))
    return found


def _require_known(named: dict[str, list[Address]], members: Sequence[Member]) -> None:
    known = sorted({member.cluster for member in members})
    for cluster in named:
        if cluster not in known:
            raise UsageError(f"--address names the cluster {cluster!r}, but these files have {', '.join(known)}")


def _notes(configurations: Sequence[Configuration], members: Sequence[Member]) -> Iterator[str]:
    """What the files leave open."""
    directory = Directory(members)
    for configuration, member in zip(configurations, members, strict=True):
        if directory.is_hidden(member):
            yield (
                f"{configuration.source}: the downstream {member.cluster} has a loopback address that other clusters "
                "have too, so links from it aren't recognised: give the address that others use, as "
                f"--address {member.cluster}=HOST:PORT"
            )
        if configuration.settings.sources.management:
            yield (
                f"{configuration.source}: what the downstream's HTTP API defines isn't counted; list a definitions "
                "export under `definitions.files`"
            )


def _lines(graph: Graph, carriers: Sequence[Carrier], found: Findings) -> Iterator[str]:
    yield f"{len(graph.nodes):,} exchanges, {len(graph.hops):,} links"
    for hop in graph.hops:
        yield f"  {label(hop.upstream)} → {label(hop.downstream)}  max-hops {hop.max_hops}"
    if carriers:
        yield f"{len(carriers):,} queue links and shovels, which move messages and copy none"
    for carrier in carriers:
        yield f"  {end_label(carrier.source)} → {end_label(carrier.destination)}  {carrier_label(carrier)}"
    for number, part in enumerate(found.parts, 1):
        if len(found.parts) > 1:
            yield f"part {number} of {len(found.parts)}: {label(part.graph.nodes[0])} and what is linked with it"
        yield from _reached(part)
        yield from _verdict(part)


def _reached(part: Part) -> Iterator[str]:
    """Who reaches whom, a line for each publisher."""
    by_publisher = groupby(part.arrivals or (), key=lambda arrival: arrival.publisher)
    for shown, (publisher, arrivals) in enumerate(by_publisher):
        if shown == MOST_SHOWN:
            yield "  more publishers: --format json has all"
            return
        yield f"  published at {label(publisher)}: {_grouped(list(arrivals))}"


def _grouped(arrivals: list[Arrival]) -> str:
    counts = sorted({each.copies for each in arrivals}, key=lambda count: (count != 1, count))
    return "; ".join(
        f"{_times(count)} at {_listed([label(each.subscriber) for each in arrivals if each.copies == count])}"
        for count in counts
    )


def _listed(names: list[str]) -> str:
    more = len(names) - MOST_SHOWN
    return ", ".join(names[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _times(count: int) -> str:
    return _TIMES.get(count, f"{count} times")


def _verdict(part: Part) -> Iterator[str]:
    if part.arrivals is None:
        yield "max-hops too large: messages are copied so often that counting was given up"
    if part.never:
        yield f"max-hops too small: {_pairs(len(part.never))} get nothing"
    if part.repeated:
        yield f"max-hops too large: {_pairs(len(part.repeated))} get messages more than once"
    if part.is_right:
        yield "right: every message arrives once at each exchange that it can get to"
    else:
        yield from _advice(part)
    if part.is_one_way_ring and part.fragile:
        yield "a ring in one direction: if any one of its links is down, others get nothing over it"
    else:
        for hop in part.fragile[:MOST_SHOWN]:
            yield f"without the link {label(hop.upstream)} → {label(hop.downstream)} others get nothing over it either"
        if len(part.fragile) > MOST_SHOWN:
            yield f"{len(part.fragile) - MOST_SHOWN:,} more such links: --format json has all"


def _pairs(count: int) -> str:
    return "1 pair of exchanges" if count == 1 else f"{count} pairs of exchanges"


def _advice(part: Part) -> Iterator[str]:
    if part.fitting:
        yield f"set max-hops to {ranges(part.fitting, unlimited_from=part.longest)} for all links: messages arrive once"
        return
    yield "no max-hops for all links brings every message once: there are several ways, of different length"
    for remedy in part.remedies[:MOST_SHOWN]:
        link = f"the link {label(remedy.hop.upstream)} → {label(remedy.hop.downstream)}"
        yield (
            f"  set max-hops to {remedy.of_it} for {link}, to {remedy.max_hops} for all others: messages arrive once"
        )


def _as_json(graph: Graph, carriers: Sequence[Carrier], found: Findings) -> dict[str, Any]:
    return {
        "right": found.is_right,
        "exchanges": [asdict(node) for node in graph.nodes],
        "links": [
            {"upstream": asdict(hop.upstream), "downstream": asdict(hop.downstream), "max_hops": hop.max_hops}
            for hop in graph.hops
        ],
        "carriers": [asdict(carrier) for carrier in carriers],
        "parts": [_part(part) for part in found.parts],
    }


def _part(part: Part) -> dict[str, Any]:
    return {
        "exchanges": [asdict(node) for node in part.graph.nodes],
        "right": part.is_right,
        "arrivals": None if part.arrivals is None else [_arrival(each) for each in part.arrivals],
        "fitting_max_hops": list(part.fitting),
        "largest_tried": part.longest,
        "remedies": [
            {
                "link": {"upstream": asdict(remedy.hop.upstream), "downstream": asdict(remedy.hop.downstream)},
                "max_hops_of_it": remedy.of_it,
                "max_hops_of_others": remedy.max_hops,
            }
            for remedy in part.remedies
        ],
        "fragile_links": [
            {"upstream": asdict(hop.upstream), "downstream": asdict(hop.downstream)} for hop in part.fragile
        ],
    }


def _arrival(arrival: Arrival) -> dict[str, Any]:
    return {"from": asdict(arrival.publisher), "to": asdict(arrival.subscriber), "copies": arrival.copies}
