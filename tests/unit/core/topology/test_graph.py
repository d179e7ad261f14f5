"""The graph as pictures."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from agent.core.topology.graph import Carrier, CarrierEnd, Graph, Hop, Node, as_dot, as_svg

SVG = "{http://www.w3.org/2000/svg}"
GRAPH = Graph(
    (
        Hop(Node("dc1", "/", 'a "<b>'), Node("dc2", "v", "x"), 3),
        Hop(Node("dc2", "v", "x"), Node("dc1", "/", 'a "<b>')),
    )
)
CARRIERS = (
    Carrier("queue", "jobs", CarrierEnd("dc1", "/", "queue", "jobs"), CarrierEnd("dc2", "/", "queue", "jobs")),
    Carrier("shovel", "drain", CarrierEnd("dc1", "/", "queue", "in"), CarrierEnd("dc2", "v", "exchange", "x")),
)


def test_dot_names_every_exchange_and_link() -> None:
    drawn = as_dot(GRAPH, CARRIERS)
    assert '"dc1 a \\"<b>" -> "dc2 v x" [label="max-hops 3", style=solid];' in drawn
    assert '"dc1 queue jobs" -> "dc2 queue jobs" [label="queue link", style=dashed];' in drawn


def test_a_shovel_leads_to_its_destination() -> None:
    assert '"dc1 queue in" -> "dc2 v x" [label="shovel drain", style=dotted];' in as_dot(GRAPH, CARRIERS)


def test_an_address_is_no_queue() -> None:
    end = CarrierEnd("dc1", "/", "address", "topic://x")
    assert '"dc1 address topic://x" -> "dc2 v x"' in as_dot(
        GRAPH, [Carrier("shovel", "s", end, CARRIERS[1].destination)]
    )


def test_svg_is_well_formed_and_whole() -> None:
    root = ET.fromstring(as_svg(GRAPH, CARRIERS))
    assert len(root.findall(f"{SVG}circle")) == 2
    assert len(root.findall(f"{SVG}rect")) == 3
    titles = [each.text for each in root.iter(f"{SVG}title")]
    assert titles[0] == 'dc1 a "<b> to dc2 v x, max-hops 3'
    assert titles[-1] == "dc1 queue in to dc2 v x, shovel drain"
    assert [path.get("class") for path in root.findall(f"{SVG}path")] == ["exchange", "exchange", "queue", "shovel"]


def test_svg_holds_no_control_characters() -> None:
    odd = Graph((Hop(Node("dc1", "/", "a\x01"), Node("dc2", "/", "b")),))
    ET.fromstring(as_svg(odd))
