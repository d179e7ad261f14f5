"""The sidecar's manifests: of Kubernetes' own schemas, complete, and with as few rights as can be."""

import os
import subprocess
import urllib.request
from pathlib import Path
from typing import Any, Final

import kubernetes_validate  # type: ignore[import-untyped]  # it has no types
import pytest
import yaml

from tests.acceptance.command import COMMAND, Done, federation_agent
from tests.deploy.prometheus import ROOT
from tests.lab.lab import Lab, accepts
from tests.lab.waiting import DEADLINE, eventually

FOLDER: Final = ROOT / "deploy/kubernetes"
KUSTOMIZATION: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
MANIFESTS: Final[list[dict[str, Any]]] = [
    manifest for name in KUSTOMIZATION["resources"] for manifest in yaml.safe_load_all((FOLDER / name).read_text())
]
SET: Final = next(manifest for manifest in MANIFESTS if manifest["kind"] == "StatefulSet")
POD: Final[dict[str, Any]] = SET["spec"]["template"]["spec"]
AGENT: Final[dict[str, Any]] = next(found for found in POD["containers"] if found["name"] == "federation-agent")


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: str(manifest["kind"]))
def test_a_manifest_is_of_its_schema(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, "1.37", strict=True)


def test_all_files_are_used() -> None:
    [generated] = KUSTOMIZATION["configMapGenerator"]
    used = {"kustomization.yaml", *KUSTOMIZATION["resources"], *generated["files"]}
    assert {path.name for path in FOLDER.iterdir()} == used


def test_an_edited_configuration_rolls_no_broker_and_reaches_the_agent() -> None:
    assert KUSTOMIZATION["generatorOptions"]["disableNameSuffixHash"]
    assert not [mount for mount in AGENT["volumeMounts"] if "subPath" in mount]  # the kubelet doesn't update those


def test_a_bad_configuration_leaves_the_pod_alive(tmp_path: Path, lab: Lab) -> None:
    """And with it the broker in its Service: the agent neither ends nor is ended by its probe."""
    [port] = {port["containerPort"] for port in AGENT["ports"]}
    *_, address = AGENT["args"]
    assert address == yaml.safe_load((FOLDER / "agent.yml").read_text())["agent"]["http"]["listen"] == f"0.0.0.0:{port}"
    probe = AGENT["livenessProbe"]["httpGet"]
    assert probe["port"] in {each["name"] for each in AGENT["ports"]}

    ours = lab.ports.take()
    moved = {address: f"0.0.0.0:{ours}", "/etc/federation-agent/agent.yml": str(tmp_path / "agent.yml")}
    command = [COMMAND, *(moved.get(word, word) for word in AGENT["args"])]
    with subprocess.Popen(command, env=os.environ | lab.mark, stdout=subprocess.DEVNULL) as agent:
        try:
            eventually(lambda: accepts(ours), what="HTTP is up")
            with urllib.request.urlopen(f"http://127.0.0.1:{ours}{probe['path']}", timeout=DEADLINE) as answer:
                assert answer.status == 200
        finally:
            agent.terminate()
    assert agent.returncode == 0


def test_the_pod_starts_without_what_the_agent_reads() -> None:
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    assert volumes["configuration"]["configMap"]["optional"]
    assert volumes["secrets"]["secret"]["optional"]


def test_the_agent_has_no_rights_and_is_asked_how_it_is() -> None:
    assert AGENT["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert AGENT["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert "readinessProbe" not in AGENT  # readiness is the pod's: it would take the broker out of its Service
    assert not POD["automountServiceAccountToken"]


def test_what_is_mounted_is_made_and_what_is_read_is_mounted(tmp_path: Path) -> None:
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    claims = {claim["metadata"]["name"] for claim in SET["spec"]["volumeClaimTemplates"]}
    mounted = {mount["name"] for container in POD["containers"] for mount in container["volumeMounts"]}
    assert mounted == volumes.keys() | claims
    [secret] = [manifest for manifest in MANIFESTS if manifest["kind"] == "Secret"]
    assert volumes["secrets"]["secret"]["secretName"] == secret["metadata"]["name"]
    assert volumes["configuration"]["configMap"]["name"] == KUSTOMIZATION["configMapGenerator"][0]["name"]

    done = validated(tmp_path, dict.fromkeys(secret["stringData"], "s3cret"))
    assert (done.status, done.err) == (0, "")


def test_the_secret_s_example_is_no_usable_token(tmp_path: Path) -> None:
    [secret] = [manifest for manifest in MANIFESTS if manifest["kind"] == "Secret"]
    done = validated(tmp_path, secret["stringData"])
    assert done.status == 2
    assert "the token is empty" in done.err


def validated(directory: Path, secrets: dict[str, str]) -> Done:
    """The sidecar's configuration with these files as its secrets."""
    [mounted] = [mount["mountPath"] for mount in AGENT["volumeMounts"] if mount["name"] == "secrets"]
    for name, value in secrets.items():
        (directory / name).write_text(value)
    (directory / "agent.yml").write_text((FOLDER / "agent.yml").read_text().replace(mounted, str(directory)))
    return federation_agent("validate", "-c", directory / "agent.yml")
