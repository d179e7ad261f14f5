"""Every query of the Grafana dashboard, asked of a real Prometheus that reads a real agent between real brokers."""

import base64
import copy
import json
import re
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest

from tests.deploy.prometheus import ROOT, Prometheus
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, policies
from tests.lab.certificates import Authority
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.waiting import eventually

DASHBOARD: Final[dict[str, Any]] = json.loads((ROOT / "deploy/grafana/dashboards/federation-agent.json").read_text())
VARIABLES: Final[list[dict[str, Any]]] = DASHBOARD["templating"]["list"]
SCHEMA: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("grafana.schema.json").read_text())
KINDS: Final = {"row": "Row", "stat": "Stat", "table": "Table", "timeseries": "TimeSeries"}
OF_PROMETHEUS: Final = {"expr", "titleFormat", "textFormat", "definition"}
"""Keys of annotations and variables that their data source defines."""
PANELS: Final = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
LABEL_VALUES: Final = re.compile(r"label_values\((?P<expression>.*), (?P<label>\w+)\)$")


def queries() -> dict[str, str]:
    """All of them, by where they stand."""
    found = {f"{panel['title']} {target['refId']}": target["expr"] for panel in PANELS for target in panel["targets"]}
    for annotation in DASHBOARD["annotations"]["list"]:
        found[annotation["name"]] = annotation["expr"]
    for variable in VARIABLES[1:]:
        asked = LABEL_VALUES.match(variable["definition"])
        found[variable["name"]] = asked["expression"] if asked else variable["definition"][len("query_result(") : -1]
    return found


def objects(inside: Any) -> Iterator[dict[str, Any]]:
    if isinstance(inside, dict):
        yield inside
        inside = list(inside.values())
    if isinstance(inside, list):
        for each in inside:
            yield from objects(each)


def token(seconds: int) -> str:
    parts = {"alg": "none"}, {"exp": int(time.time()) + seconds}, "signature"
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


@pytest.fixture
def here(broker: Node, site_on: SiteOn) -> Site:
    return site_on(broker).exchange("fed.x").queue("a")


@pytest.fixture
def there(second_broker: Node, site_on: SiteOn) -> Site:
    return site_on(second_broker)


@pytest.fixture
def away(lab: Lab, tmp_path: Path) -> str:
    """An upstream that isn't there, and would want a client certificate and a token."""
    client = Authority.create(tmp_path).client("agent")
    shown = f"certfile={client.certfile}&keyfile={client.keyfile}"
    return f"amqps://agent:{token(3600)}@127.0.0.1:{lab.ports.take()}?{shown}"


@pytest.fixture
def agent(agent_of: AgentOf, broker: Node, here: Site, there: Site, away: str) -> Agent:
    """One link that runs, one that can't."""
    upstreams = {"origin": {"uri": there.uri}, "away": {"uri": away, "reconnect-delay": 1}}
    return agent_of(broker).write({here.vhost: {"upstreams": upstreams, "policies": policies()}})


@pytest.fixture
def prometheus(agent: Agent, lab: Lab, tmp_path: Path) -> Iterator[Prometheus]:
    (tmp_path / "token").write_text("unasked")
    started = Prometheus.start(lab, tmp_path, [f"127.0.0.1:{agent.port}"], tmp_path / "token")
    yield started
    started.stop()


def test_every_query_returns_data(agent: Agent, prometheus: Prometheus, here: Site, there: Site) -> None:
    chosen = {"agent": f"127.0.0.1:{agent.port}", "vhost": here.vhost, "link": "fed.x", "__rate_interval": "10s"}
    asked = {
        place: re.sub(r"\$(\w+)", lambda name: chosen[name[1]], expression) for place, expression in queries().items()
    }
    asked["Alerts"] = 'ALERTS{alertname="FederationLinkDown",alertstate="pending"}'  # ten minutes are too long here
    agent.start().wait_for("running", (here.vhost, "fed.x", "origin"))
    there.wait_bound("a", exchange="fed.x")
    # An agent reads what expires some seconds after its start: meanwhile nothing is published, and nothing else asked.
    wait_for_data(prometheus, {place: asked.pop(place) for place in [*asked] if place.startswith("Certificates")})
    rounds = count()

    def forward() -> None:
        here.bind(f"b{next(rounds)}", name="q", exchange="fed.x")
        there.publish(["message"] * 50, "a", exchange="fed.x")

    wait_for_data(prometheus, asked, meanwhile=forward)
    assert_agents_can_be_chosen(agent, prometheus)


def wait_for_data(
    prometheus: Prometheus, asked: dict[str, str], *, meanwhile: Callable[[], object] = lambda: None
) -> None:
    """One query after the other, each until it had data once."""
    missing = list(asked.items())

    def answered() -> bool:
        meanwhile()
        while missing and prometheus.query(missing[0][1]):
            del missing[0]
        return not missing

    try:
        eventually(answered, ignoring=OSError)
    except AssertionError as error:
        raise AssertionError(f"without data: {missing[0]}") from error


def assert_agents_can_be_chosen(agent: Agent, prometheus: Prometheus) -> None:
    """Grafana shows an agent's name and puts its address into queries."""
    [found] = prometheus.query("federation_agent_info")
    told = found["metric"]
    as_grafana_writes = "{" + ",".join(f'{name}="{value}"' for name, value in sorted(told.items())) + "} 1 0"
    named = re.search(VARIABLES[1]["regex"].strip("/").replace("(?<", "(?P<"), as_grafana_writes)
    assert named
    assert named["value"] == told["instance"] == f"127.0.0.1:{agent.port}"
    assert named["text"] == told["agent"]


def test_nothing_is_tied_to_one_data_source() -> None:
    sources = [found["datasource"] for found in objects(DASHBOARD) if "datasource" in found]
    assert sources
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
    assert [variable["name"] for variable in VARIABLES] == ["datasource", "agent", "vhost", "link"]


def test_grafana_12_takes_each_panel_as_it_is() -> None:
    """By the types that Grafana publishes: every key is known there, has its type, and none is missing."""
    found = {panel["title"]: complaints(panel, KINDS[panel["type"]]) for panel in DASHBOARD["panels"]}
    assert {title: said for title, said in found.items() if said} == {}
    around = copy.deepcopy(DASHBOARD)
    for each in (*around["annotations"]["list"], *around["templating"]["list"]):
        for key in OF_PROMETHEUS & each.keys():
            del each[key]
    assert complaints(around, "Dashboard") == []


@pytest.mark.parametrize("kind", ["row", "stat", "table", "timeseries"])
def test_what_grafana_12_does_not_know_or_misses_is_found(kind: str) -> None:
    panel = next(each for each in DASHBOARD["panels"] if each["type"] == kind)
    for key in panel.get("options", {"collapsed": None}):
        broken = copy.deepcopy(panel)
        inside = broken.get("options", broken)
        inside[f"{key}s"] = inside.pop(key)
        assert complaints(broken, KINDS[kind]), key


def complaints(value: Any, definition: str) -> list[str]:
    schema = SCHEMA | {"$ref": f"#/definitions/{definition}"}
    return [f"{one.json_path}: {one.message}" for one in jsonschema.Draft7Validator(schema).iter_errors(value)]


def test_panels_have_titles_of_their_own_and_don_t_overlap() -> None:
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles)
    assert all(panel["description"] for panel in PANELS)
    taken = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) == 23
