"""The example for RabbitMQ's Cluster Operator: its pod by Kubernetes' schema, its user on a real broker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import kubernetes_validate  # type: ignore[import-untyped]  # it has no types
import pytest
import yaml

from tests.deploy.prometheus import ROOT
from tests.deploy.test_kubernetes import AGENT as SIDECAR
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.lab.lab import accepts
from tests.lab.node import Node
from tests.lab.waiting import eventually

FOLDER: Final = ROOT / "deploy/cluster-operator"
KUSTOMIZATION: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
MANIFESTS: Final[dict[str, dict[str, Any]]] = {
    manifest["kind"]: manifest
    for name in KUSTOMIZATION["resources"]
    for manifest in yaml.safe_load_all((FOLDER / name).read_text())
}
CLUSTER: Final = MANIFESTS["RabbitmqCluster"]
POD: Final[dict[str, Any]] = CLUSTER["spec"]["override"]["statefulSet"]["spec"]["template"]["spec"]
SECRETS: Final = "/run/secrets/federation-agent"
PASSWORD: Final = "s3cret"
EXCHANGE: Final = "federated.reloaded"


def test_the_override_is_a_pod_that_kubernetes_takes() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "merged"}, "spec": POD}
    kubernetes_validate.validate(pod, "1.37", strict=True)
    kubernetes_validate.validate(MANIFESTS["Secret"], "1.37", strict=True)


def test_the_container_is_the_one_of_the_plain_sidecar() -> None:
    [agent] = POD["containers"]
    same = ("name", "args", "ports", "livenessProbe", "resources", "securityContext")
    assert {key: agent[key] for key in same} == {key: SIDECAR[key] for key in same}
    assert "readinessProbe" not in agent
    assert {mount["name"] for mount in agent["volumeMounts"]} == {volume["name"] for volume in POD["volumes"]}


def test_the_parts_refer_to_each_other() -> None:
    [generated] = KUSTOMIZATION["configMapGenerator"]
    assert KUSTOMIZATION["generatorOptions"]["disableNameSuffixHash"]
    assert {path.name for path in FOLDER.iterdir()} == {
        "kustomization.yaml",
        *KUSTOMIZATION["resources"],
        *generated["files"],
    }
    user, permission, secret = (MANIFESTS[kind] for kind in ("User", "Permission", "Secret"))
    assert {"username", "password"} <= secret["stringData"].keys()
    assert user["spec"]["importCredentialsSecret"] == {"name": secret["metadata"]["name"]}
    assert permission["spec"]["userReference"] == {"name": user["metadata"]["name"]}
    for manifest in (user, permission):
        assert manifest["spec"]["rabbitmqClusterReference"] == {"name": CLUSTER["metadata"]["name"]}


@pytest.fixture
def user(broker: Node) -> Iterator[None]:
    """As the Messaging Topology Operator creates it."""
    tags = ",".join(MANIFESTS["User"]["spec"]["tags"])
    broker.admin.put("users", "agent", body={"password": PASSWORD, "tags": tags})
    broker.admin.put("permissions", "/", "agent", body=MANIFESTS["Permission"]["spec"]["permissions"])
    broker.admin.exchange("/", EXCHANGE)
    yield
    broker.admin.delete("exchanges", "/", EXCHANGE)
    broker.admin.delete("users", "agent")


def configuration(agent: Agent, upstream: Node, *, pattern: str) -> str:
    """The example's, between these brokers."""
    text = (FOLDER / "agent.yml").read_text().replace(r"^federated\.", pattern)
    text = text.replace("127.0.0.1:5672", f"127.0.0.1:{agent.downstream.amqp_port}")
    text = text.replace("127.0.0.1:15672", f"127.0.0.1:{agent.downstream.management_port}")
    text = text.replace("0.0.0.0:9419", f"127.0.0.1:{agent.port}")
    document = yaml.safe_load(text.replace(SECRETS, str(agent.directory)))
    document["agent"]["cleanup-after"] = 0
    document["agent"].pop("status-export")
    document["agent"]["http"].pop("token")  # the tests' client has none
    document["upstreams"]["origin"]["uri"] = upstream.uri()
    return yaml.safe_dump(document)


def switch(directory: Path, version: str, text: str) -> None:
    """As the kubelet updates a mounted ConfigMap: a new folder, and one rename of the link to it."""
    (directory / version).mkdir()
    (directory / version / "agent.yaml").write_text(text)
    (directory / "..data_tmp").symlink_to(version)
    (directory / "..data_tmp").rename(directory / "..data")


@pytest.mark.usefixtures("user")
@pytest.mark.thorough
def test_an_edited_config_map_is_in_force_without_a_restart(
    broker: Node, second_broker: Node, agent_of: AgentOf
) -> None:
    agent = agent_of(broker)
    (agent.directory / "password").write_text(PASSWORD)
    switch(agent.directory, "..first", configuration(agent, second_broker, pattern="^nothing$"))
    agent.path.symlink_to("..data/agent.yaml")
    agent.start()
    eventually(lambda: agent.log.exists() and accepts(agent.port), what="HTTP is up")
    pid = agent.pid
    switch(agent.directory, "..second", configuration(agent, second_broker, pattern=r"^federated\."))
    agent.wait_for("running", ("/", EXCHANGE, "origin"))
    assert (agent.alive, agent.pid) == (True, pid)
    switch(agent.directory, "..third", configuration(agent, second_broker, pattern="^nothing$"))
    eventually(lambda: not agent.links(), what="the link is gone")
