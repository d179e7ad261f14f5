"""`topology`: where messages go in a federation of several clusters, from their agents' configurations alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.cli import output
from agent.core.topology.drawing import as_dot, as_svg, label
from agent.core.topology.findings import Arrival, Findings, examine, ranges
from agent.core.topology.flow import TooManyCopiesError
from agent.core.topology.graph import Graph
from agent.core.topology.members import Member, graph_of
from agent.definitions.sources.load import Configuration, load_configuration
from agent.errors import UsageError

MOST_SHOWN = 20  # of one kind of finding, in text


def show_topology(paths: Sequence[Path], exchanges: Sequence[str], format_: str) -> bool:
    """Returns whether each message arrives once wherever it could."""
    members = [_member(load_configuration(str(path), environment=os.environ, strict=False)) for path in paths]
    graph = graph_of(members, exchanges)
    if not graph.hops:
        raise UsageError(
            "these files define no federated exchange whose name is known: give names that policies match with "
            "--exchange NAME, or list a definitions export under `definitions.files`"
        )
    found = _examined(graph)
    match format_:
        case "dot":
            output.say(output.Ready(as_dot(graph)))
        case "svg":
            output.say(output.Ready(as_svg(graph)))
        case "json":
            output.say_json(_as_json(graph, found))
        case _:
            for line in _lines(graph, found, members):
                output.say(line)
    return found is not None and not found.never and not found.repeated


def _member(configuration: Configuration) -> Member:
    settings = configuration.settings
    uris = settings.downstream.uris
    name = settings.agent.group or f"{uris[0].connect_host or configuration.source}:{uris[0].connect_port}"
    return Member(name, uris, configuration.definitions, configuration.states)


def _examined(graph: Graph) -> Findings | None:
    try:
        return examine(graph)
    except TooManyCopiesError:
        return None


def _lines(graph: Graph, found: Findings | None, members: Sequence[Member]) -> Iterator[str]:
    yield f"{len(graph.nodes)} exchanges, {len(graph.hops)} links"
    for hop in graph.hops:
        yield f"  {label(hop.upstream)} → {label(hop.downstream)}  max-hops {hop.max_hops}"
    yield from _unrecognised(members)
    if found is None:
        yield "messages are copied so often that counting was given up: lower max-hops"
        return
    yield from _shown("arrives never", found.never)
    yield from _shown("arrives more than once", found.repeated)
    if not found.never and not found.repeated:
        yield "every message arrives once at each exchange that it can get to"
    elif found.fitting:
        yield f"max-hops {ranges(found.fitting)} for all links would bring every message once"
    else:
        yield "no max-hops for all links would bring every message once: there are several ways of different length"
    for hop in found.fragile:
        yield f"without the link {label(hop.upstream)} → {label(hop.downstream)} others get nothing from there either"


def _unrecognised(members: Sequence[Member]) -> Iterator[str]:
    if len(members) > 1:
        for member in members:
            if not member.addresses:
                yield (
                    f"{member.cluster}: its downstream is a loopback address, by which no other cluster reaches it; "
                    "name the host that others use in downstream.uri, too"
                )


def _shown(what: str, arrivals: Sequence[Arrival]) -> Iterator[str]:
    for each in arrivals[:MOST_SHOWN]:
        times = f" ({each.copies} times)" if each.copies else ""
        yield f"{what}: from {label(each.publisher)} to {label(each.subscriber)}{times}"
    if len(arrivals) > MOST_SHOWN:
        yield f"{what}: {len(arrivals) - MOST_SHOWN} pairs more; --format json has all"


def _as_json(graph: Graph, found: Findings | None) -> dict[str, Any]:
    return {
        "exchanges": [asdict(node) for node in graph.nodes],
        "links": [
            {"upstream": asdict(hop.upstream), "downstream": asdict(hop.downstream), "max_hops": hop.max_hops}
            for hop in graph.hops
        ],
        "counted": found is not None,
        "arrivals": [] if found is None else [_arrival(each) for each in found.arrivals],
        "fitting_max_hops": [] if found is None else list(found.fitting),
        "fragile_links": []
        if found is None
        else [{"upstream": asdict(hop.upstream), "downstream": asdict(hop.downstream)} for hop in found.fragile],
    }


def _arrival(arrival: Arrival) -> dict[str, Any]:
    return {"from": asdict(arrival.publisher), "to": asdict(arrival.subscriber), "copies": arrival.copies}
