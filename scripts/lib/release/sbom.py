"""What an artefact holds, as CycloneDX 1.6: from the lock file, and compared with what is there."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.markers import Marker
from packaging.utils import canonicalize_name

OWN = "federation-agent"
APPROVED = "License :: OSI Approved :: "
LONGEST_NAME = 80
PIN = re.compile(r"^([\w.-]+)==([^\s;\\]+)(?: ; (.*?))?(?: \\)?$", re.MULTILINE)


def locked(lock: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The versions that a lock names for an environment."""
    return {
        canonicalize_name(name): version
        for name, version, marker in PIN.findall(lock.read_text())
        if not marker or Marker(marker).evaluate(dict(environment))
    }


def installed(folder: Path) -> dict[str, Distribution]:
    found = (PathDistribution(each) for each in sorted(folder.glob("*.dist-info")))
    return {canonicalize_name(each.metadata["Name"]): each for each in found}


def differences(wanted: Mapping[str, str], there: Mapping[str, Distribution]) -> list[str]:
    versions = {name: each.version for name, each in there.items() if name != OWN}
    names = sorted(wanted.keys() | versions.keys())
    return [
        f"{name}: {wanted.get(name)} locked, {versions.get(name)} there"
        for name in names
        if wanted.get(name) != versions.get(name)
    ]


def document(
    artefact: str,
    version: str,
    wanted: Mapping[str, str],
    there: Mapping[str, Distribution],
    *,
    epoch: int,
    system: Mapping[str, tuple[str, str]] | None = None,
) -> str:
    """`there`, as far as the packages are known, gives their licences; `system` are Debian's packages, with version and
    architecture. The same arguments, the same text."""
    packages = [_package(name, version, there.get(name)) for name, version in sorted(wanted.items())]
    packages += [_of_debian(name, *found) for name, found in sorted((system or {}).items())]
    content = f"{artefact} {version} {[each['purl'] for each in packages]}"
    root = {"type": "application", "name": OWN, "version": version, "bom-ref": f"pkg:generic/{OWN}@{version}"}
    root["purl"] = root["bom-ref"]
    root["licenses"] = [{"expression": "Apache-2.0"}]
    found = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, content).urn,
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": root,
            "properties": [{"name": f"{OWN}:artefact", "value": artefact}],
        },
        "components": packages,
        "dependencies": [{"ref": root["bom-ref"], "dependsOn": [each["bom-ref"] for each in packages]}],
    }
    return json.dumps(found, indent=2) + "\n"


def _package(name: str, version: str, there: Distribution | None) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    found: dict[str, Any] = {"type": "library", "name": name, "version": version, "bom-ref": purl, "purl": purl}
    if licences := [] if there is None else _licences(there):
        found["licenses"] = licences
    return found


def _of_debian(name: str, version: str, architecture: str) -> dict[str, Any]:
    purl = f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={architecture}"
    return {"type": "library", "name": name, "version": version, "bom-ref": purl, "purl": purl}


def _licences(there: Distribution) -> list[dict[str, Any]]:
    """As the package names them: an expression, classifiers, or a name; a whole text is none."""
    metadata = there.metadata
    if expression := metadata["License-Expression"]:
        return [{"expression": expression}]
    classifiers = [each for each in metadata.get_all("Classifier", []) if each.startswith(APPROVED)]
    names = [each.removeprefix(APPROVED) for each in classifiers] or [metadata["License"] or ""]
    return [{"license": {"name": each}} for each in names if 0 < len(each) <= LONGEST_NAME]
