"""Who may read what a pod mounts: the agent its secrets, and nobody else the broker's volume."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.deploy.test_custom_resources import manifests

BROKER_FOLDER: Final = "/var/lib/rabbitmq"
AGENT: Final = 10001
BY_GROUP, BY_ALL = 0o040, 0o004
UNLESS_TOLD: Final = 0o644  # what Kubernetes gives the files of secrets and ConfigMaps
MADE_OF: Final = ("secret", "configMap")


def pods(node: Any) -> Iterator[dict[str, Any]]:
    """The pods that a manifest makes, wherever it describes them."""
    if isinstance(node, dict) and "containers" in node:
        yield node
    elif isinstance(node, dict):
        for value in node.values():
            yield from pods(value)


PODS: Final = {name: (manifest["kind"], pod) for name, manifest in manifests() for pod in pods(manifest)}


def mounts(pod: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Each container with each of its mounts, and the volume; one of a claim's template has no more than its name."""
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for container in pod["containers"]:
        for mount in container["volumeMounts"]:
            yield container, mount, volumes.get(mount["name"], {"name": mount["name"], "persistentVolumeClaim": {}})


def of_agent(container: dict[str, Any]) -> bool:
    return bool(container.get("securityContext", {}).get("runAsUser") == AGENT)


def test_there_are_pods_with_brokers_and_pods_with_agents() -> None:
    assert {kind for kind, _ in PODS.values()} == {"StatefulSet", "RabbitmqCluster", "Deployment", "CronJob"}
    assert all(any(of_agent(container) for container in pod["containers"]) for _, pod in PODS.values())


@pytest.mark.parametrize("name", PODS)
def test_the_broker_s_volume_is_opened_to_no_group(name: str) -> None:
    """Erlang refuses a cookie that others than its owner may access, and an fsGroup changes that at each mount."""
    kind, pod = PODS[name]
    has_broker = kind == "RabbitmqCluster" or any(mount["mountPath"] == BROKER_FOLDER for _, mount, _ in mounts(pod))
    if has_broker:
        assert "fsGroup" not in pod.get("securityContext", {})


@pytest.mark.parametrize("name", PODS)
def test_the_agent_s_user_can_read_and_write_what_is_mounted_for_it(name: str) -> None:
    """The files of secrets belong to root, and to the fsGroup if there is one; a claim's folder too."""
    _, pod = PODS[name]
    is_in_group = pod.get("securityContext", {}).get("fsGroup") == AGENT
    for container, mount, volume in mounts(pod):
        if not of_agent(container):
            continue
        for source in (volume[kind] for kind in MADE_OF if kind in volume):
            modes = {source.get("defaultMode", UNLESS_TOLD), *(item["mode"] for item in source.get("items", ()))}
            assert all(mode & (BY_GROUP if is_in_group else BY_ALL) for mode in modes), mount
        if "persistentVolumeClaim" in volume and not mount.get("readOnly"):
            assert is_in_group, mount


@pytest.mark.parametrize("name", PODS)
def test_secrets_are_mounted_for_the_agent_only(name: str) -> None:
    """They may be read by every user of the container."""
    for container, mount, volume in mounts(PODS[name][1]):
        assert of_agent(container) or "secret" not in volume, mount
