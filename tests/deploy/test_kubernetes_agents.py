"""Three agents in pods of their own, what may be taken from them, and how Prometheus finds agents in all examples."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import kubernetes_validate  # type: ignore[import-untyped]  # it has no types
import pytest
import yaml

from agent.version import VERSION
from tests.acceptance.command import federation_agent
from tests.deploy.prometheus import DEPLOYED, ROOT
from tests.deploy.test_cluster_operator import CLUSTER
from tests.deploy.test_cluster_operator import MANIFESTS as OF_OPERATOR
from tests.deploy.test_cluster_operator import POD as OPERATOR_POD
from tests.deploy.test_custom_resources import BUILT_IN, errors, kind_of
from tests.deploy.test_kubernetes import AGENT as SIDECAR
from tests.deploy.test_kubernetes import SET

FOLDER: Final = ROOT / "deploy/kubernetes-agents"
KUSTOMIZATION: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
MANIFESTS: Final[dict[str, dict[str, Any]]] = {
    manifest["kind"]: manifest
    for name in KUSTOMIZATION["resources"]
    for manifest in yaml.safe_load_all((FOLDER / name).read_text())
}
DEPLOYMENT: Final[dict[str, Any]] = MANIFESTS["Deployment"]["spec"]
POD: Final[dict[str, Any]] = DEPLOYMENT["template"]["spec"]
AGENT: Final[dict[str, Any]] = POD["containers"][0]
MONITOR: Final[dict[str, Any]] = yaml.safe_load((DEPLOYED / "podmonitor.yaml").read_text())
NAME: Final = "app.kubernetes.io/name"
BUDGETS: Final = {"agents": MANIFESTS["PodDisruptionBudget"], "brokers": OF_OPERATOR["PodDisruptionBudget"]}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="only kubectl renders as kubectl does, and set-up has none")
@pytest.mark.parametrize("folder", ["kubernetes", "kubernetes-agents", "cluster-operator"])
def test_what_kubectl_makes_of_an_example_is_taken(folder: str) -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", ROOT / "deploy" / folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rendered = list(yaml.safe_load_all(done.stdout))
    for manifest in rendered:
        if manifest["apiVersion"] in BUILT_IN:
            kubernetes_validate.validate(manifest, "1.37", strict=True)
        else:
            assert errors(manifest, kind_of(manifest)) == []
    assert {"ConfigMap", "Secret"} < {manifest["kind"] for manifest in rendered}
    assert f"image: federation-agent:{VERSION}\n" in done.stdout


@pytest.mark.parametrize("manifest", [*MANIFESTS.values(), BUDGETS["brokers"]], ids=lambda one: str(one["kind"]))
def test_kubernetes_takes_what_is_declared(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, "1.37", strict=True)


def test_every_file_of_the_agents_is_used() -> None:
    [generated] = KUSTOMIZATION["configMapGenerator"]
    assert {path.name for path in FOLDER.iterdir()} == {
        "kustomization.yaml",
        *KUSTOMIZATION["resources"],
        *generated["files"],
    }


def test_an_agent_in_a_pod_of_its_own_is_the_sidecar_and_says_when_it_is_ready() -> None:
    same = ("name", "image", "args", "ports", "livenessProbe", "resources", "securityContext")
    assert {key: AGENT[key] for key in same} == {key: SIDECAR[key] for key in same}
    assert AGENT["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "federation"}
    assert {mount["name"] for mount in AGENT["volumeMounts"]} == {volume["name"] for volume in POD["volumes"]}


@pytest.mark.parametrize(
    ("budget", "replicas", "labels"),
    [
        (BUDGETS["agents"], DEPLOYMENT["replicas"], DEPLOYMENT["template"]["metadata"]["labels"]),
        # The operator gives its pods the name of the cluster as this label.
        (BUDGETS["brokers"], CLUSTER["spec"]["replicas"], {NAME: CLUSTER["metadata"]["name"]}),
    ],
    ids=["agents", "brokers"],
)
def test_of_three_one_may_be_away(budget: dict[str, Any], replicas: int, labels: dict[str, str]) -> None:
    assert (replicas, budget["spec"]["maxUnavailable"]) == (3, 1)
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_prometheus_finds_every_example_s_agent_with_its_token() -> None:
    [endpoint] = MONITOR["spec"]["podMetricsEndpoints"]
    [expression] = MONITOR["spec"]["selector"]["matchExpressions"]
    labels = [each["metadata"]["labels"] for each in (SET["spec"]["template"], DEPLOYMENT["template"])]
    assert {each[expression["key"]] for each in [*labels, {NAME: CLUSTER["metadata"]["name"]}]} == {
        *expression["values"]
    }
    for agent in (SIDECAR, AGENT, OPERATOR_POD["containers"][0]):
        assert endpoint["port"] in {port["name"] for port in agent["ports"]}
    token = endpoint["authorization"]["credentials"]
    for folder in ("kubernetes", "kubernetes-agents", "cluster-operator"):
        secret = yaml.safe_load((ROOT / "deploy" / folder / "secret.yaml").read_text())
        assert secret["metadata"]["name"] == token["name"]
        assert token["key"] in secret["stringData"]
    [job] = yaml.safe_load((DEPLOYED / "prometheus.yml").read_text())["scrape_configs"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": job["job_name"]}]


def test_the_agents_configuration_is_valid(tmp_path: Path) -> None:
    [mounted] = [mount["mountPath"] for mount in AGENT["volumeMounts"] if mount["name"] == "secrets"]
    for name in MANIFESTS["Secret"]["stringData"]:
        (tmp_path / name).write_text("s3cret")
    (tmp_path / "agent.yml").write_text((FOLDER / "agent.yml").read_text().replace(mounted, str(tmp_path)))
    done = federation_agent("validate", "-c", tmp_path / "agent.yml")
    assert (done.status, done.err) == (0, "")
