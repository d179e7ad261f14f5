"""docker-compose.yml, as far as can be told without Docker: its schema, its pieces, and the agent with its files."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.conftest import Compose, ComposeError
from tests.deploy.prometheus import ROOT
from tests.integration.federation.conftest import AgentOf
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.waiting import eventually

FILE: Final = ROOT / "docker-compose.yml"
COMPOSE: Final[dict[str, Any]] = yaml.safe_load(FILE.read_text())
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]
PIECES: Final = ROOT / "deploy/compose"
BROKERS: Final = ("upstream", "downstream")


def test_it_is_of_the_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.versions
def test_compose_takes_it(compose: Compose) -> None:
    found = compose(FILE)
    assert found["services"].keys() == SERVICES.keys() - {"traffic"}  # which only its profile starts
    agent = found["services"]["agent"]
    assert {name: needed["condition"] for name, needed in agent["depends_on"].items()} == dict.fromkeys(
        BROKERS, "service_healthy"
    )
    assert (agent["read_only"], agent["cap_drop"], agent["stop_grace_period"]) == (True, ["ALL"], "30s")


@pytest.mark.versions
def test_compose_refuses_what_is_wrong(compose: Compose, tmp_path: Path) -> None:
    wrong = tmp_path / FILE.name
    wrong.write_text(FILE.read_text().replace("secrets: [agent-token, agent-password]", "secrets: [agent-tokne]"))
    with pytest.raises(ComposeError, match="agent-tokne"):
        compose(wrong)


def test_all_that_it_mounts_is_there() -> None:
    volumes = [volume.split(":") for service in SERVICES.values() for volume in service.get("volumes", ())]
    files = [source for source, *_ in volumes if source.startswith(".")]
    files += [secret["file"] for secret in COMPOSE["secrets"].values()]
    assert [path for path in files if not (ROOT / path).exists()] == []
    assert {source for source, *_ in volumes if not source.startswith(".")} == COMPOSE["volumes"].keys()
    assert all(mode == ["ro"] for source, _, *mode in volumes if source.startswith("."))
    assert {name for service in SERVICES.values() for name in service.get("secrets", ())} == COMPOSE["secrets"].keys()


def test_no_service_starts_before_what_it_needs_is_healthy() -> None:
    for service in SERVICES.values():
        for needed, how in service.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}
            assert "healthcheck" in SERVICES[needed] or "build" in SERVICES[needed]  # the image has its own
        assert "healthcheck" in service or "build" in service
        assert "disable" not in service.get("healthcheck", {})  # `up --wait` fails where it is told so


def test_no_registry_is_asked_for_what_only_a_checkout_makes() -> None:
    """And what is made follows the checkout."""
    made = {name: service.get("pull_policy") for name, service in SERVICES.items() if "build" in service}
    assert made == {"agent": "build", "traffic": "build"}


def test_a_file_that_is_replaced_while_it_runs_is_seen_inside() -> None:
    [mounted] = [volume for volume in SERVICES["agent"]["volumes"] if ":/etc/federation-agent" in volume]
    assert (ROOT / mounted.split(":")[0]).is_dir()


@pytest.mark.parametrize("name", [name for name in SERVICES if name not in BROKERS])
def test_what_is_no_broker_can_do_little(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_what_down_may_leave_behind_gives_up() -> None:
    """Without its profile the traffic stays, and its broker is gone."""
    endless = {name for name, service in SERVICES.items() if service["restart"] == "unless-stopped"}
    assert endless == {name for name, service in SERVICES.items() if "profiles" not in service}
    assert SERVICES["traffic"]["restart"].startswith("on-failure:")


def test_only_this_machine_can_reach_it_and_no_secret_is_in_it() -> None:
    assert all(port.startswith("127.0.0.1:") for service in SERVICES.values() for port in service.get("ports", ()))
    values = [(PIECES / "secrets" / path.name).read_text().strip() for path in (PIECES / "secrets").iterdir()]
    texts = [
        path.read_text()
        for path in (FILE, *PIECES.glob("*.*"), *(PIECES / "agent").iterdir(), *(PIECES / "rabbitmq").iterdir())
    ]
    assert not [value for value in values for text in texts if value in text]


def test_the_brokers_have_the_event_exchange_and_no_federation() -> None:
    plugins = (PIECES / "rabbitmq/enabled_plugins").read_text()
    assert plugins.strip() == "[rabbitmq_management,rabbitmq_event_exchange]."
    mounted = [
        "./deploy/compose/rabbitmq/enabled_plugins:/etc/rabbitmq/enabled_plugins:ro" in SERVICES[name]["volumes"]
        for name in BROKERS
    ]
    assert mounted == [True, True]
    assert {(PIECES / f"rabbitmq/{name}.conf").read_text().splitlines()[0] for name in BROKERS} == {
        f"cluster_name = {name}" for name in BROKERS
    }


def test_prometheus_and_grafana_find_their_way() -> None:
    [job] = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    [[target]] = [static["targets"] for static in job["static_configs"]]
    listen = yaml.safe_load((PIECES / "agent/agent.yml").read_text())["agent"]["http"]["listen"]
    assert target == f"agent:{listen.rpartition(':')[2]}"
    assert job["authorization"]["credentials_file"].removeprefix("/run/secrets/") in SERVICES["prometheus"]["secrets"]

    provisioning = ROOT / "deploy/grafana/provisioning"
    [source] = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert "uid" not in source
    [provider] = yaml.safe_load((provisioning / "dashboards/federation-agent.yml").read_text())["providers"]
    mounts = dict(reversed(volume.split(":")[:2]) for volume in SERVICES["grafana"]["volumes"])
    assert list((ROOT / mounts[provider["options"]["path"]]).glob("*.json"))
    assert ROOT / mounts["/etc/grafana/provisioning"] == provisioning


@pytest.fixture
def brokers(broker: Node, second_broker: Node) -> Iterator[dict[str, Node]]:
    """Brokers with the composition's own definitions, which are gone afterwards."""
    found = {"downstream": broker, "upstream": second_broker}
    for name, node in found.items():
        node.admin.post("definitions", body=json.loads((PIECES / f"rabbitmq/{name}.json").read_text()))
    yield found
    broker.admin.delete("queues", "/", "invoices")
    for node in found.values():
        node.admin.delete("exchanges", "/", "orders")
        for queue in node.admin.get("queues", "/"):
            if queue["name"].startswith("federation: orders "):
                node.admin.delete("queues", "/", queue["name"])
        for user in ("agent", "operator"):
            node.admin.delete("users", user)


def test_the_agent_federates_the_traffic_with_the_files_that_are_mounted(
    brokers: dict[str, Node], agent_of: AgentOf, lab: Lab
) -> None:
    downstream, upstream = brokers["downstream"], brokers["upstream"]
    secrets = PIECES / "secrets"
    agent = agent_of(downstream)
    text = (PIECES / "agent/agent.yml").read_text().replace("/run/secrets", str(secrets))
    for name, node in brokers.items():
        text = text.replace(f"@{name}:5672", f"@127.0.0.1:{node.amqp_port}")
        text = text.replace(f"@{name}:15672", f"@127.0.0.1:{node.management_port}")
    text = text.replace("0.0.0.0:9419", f"127.0.0.1:{agent.port}")
    agent.write_text(text.replace("/var/lib/federation-agent", str(agent.directory))).start()
    agent.wait_for("running", ("/", "orders", "origin"))
    traffic = SERVICES["traffic"]["environment"] | {
        "TRAFFIC_BROKER": f"127.0.0.1:{upstream.amqp_port}",
        "TRAFFIC_PASSWORD_FILE": str(secrets / "operator-password"),
    }
    environment = os.environ | lab.mark | traffic
    with subprocess.Popen([sys.executable, PIECES / "traffic.py"], env=environment) as publishing:
        try:
            eventually(lambda: invoices(downstream) > 5, what="orders arrive downstream")
        finally:
            publishing.terminate()


def invoices(node: Node) -> int:
    count: int = node.admin.get("queues", "/", "invoices").get("messages", 0)
    return count
