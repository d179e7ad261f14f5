"""An image as an archive, and the list of its contents; called by scripts/lib/release/images in the export of a commit.

usage: image.py TARGET LAYOUT ROOT OUTPUT. LAYOUT is the image as an OCI layout, ROOT its file system.
"""

from __future__ import annotations

import json
import re
import sys
import tarfile
from pathlib import Path

import sbom
from build import DEBIANS, EPOCH, LOCK, NAME

from agent.version import VERSION

SOURCE = Path(__file__).parents[3]
LOCKS = {"agent": [LOCK], "report": [LOCK, Path("locks/report.lock")]}
DEBIAN = DEBIANS[0]  # the Dockerfile's base
PACKAGES = f"opt/{NAME}/lib/python{DEBIAN.python}/site-packages"
FIELD = re.compile(r"^(Package|Version|Architecture|Status): (.*)$", re.MULTILINE)


def main(target: str, layout: Path, root: Path, output: Path) -> None:
    system = debian(root)
    name = f"{NAME}-{VERSION}-{target}-{system['dpkg'][1]}"
    for_docker(layout, f"{NAME}{'' if target == 'agent' else f'-{target}'}:{VERSION}")
    archive(layout, output / f"{name}.oci.tar")
    wanted: dict[str, str] = {}
    for lock in LOCKS[target]:
        wanted |= sbom.locked(SOURCE / lock, DEBIAN.environment)
    there = sbom.installed(root / PACKAGES)
    if found := sbom.differences(wanted, there):
        raise SystemExit(f"what is in the image {target} is not what is locked: {'; '.join(found)}")
    contents = sbom.document(f"{name}.oci.tar", VERSION, wanted, there, epoch=EPOCH, system=system)
    (output / f"{name}.cdx.json").write_text(contents)


def debian(root: Path) -> dict[str, tuple[str, str]]:
    """The version and the architecture of each package that is installed."""
    found = (dict(FIELD.findall(each)) for each in (root / "var/lib/dpkg/status").read_text().split("\n\n"))
    return {
        each["Package"]: (each["Version"], each["Architecture"])
        for each in found
        if each.get("Status") == "install ok installed"
    }


def for_docker(layout: Path, name: str) -> None:
    """Makes `docker load` read it, by that name: with Docker's former store a list, with containerd's an annotation."""
    index = json.loads((layout / "index.json").read_text())
    [described] = index["manifests"]
    described["annotations"]["io.containerd.image.name"] = f"docker.io/library/{name}"
    (layout / "index.json").write_text(json.dumps(index))
    manifest = json.loads((layout / blob(described)).read_text())
    layers = [blob(each) for each in manifest["layers"]]
    own = {"Config": blob(manifest["config"]), "RepoTags": [name], "Layers": layers}
    (layout / "manifest.json").write_text(json.dumps([own]))


def blob(described: dict[str, str]) -> str:
    return f"blobs/{described['digest'].replace(':', '/')}"


def archive(layout: Path, made: Path) -> None:
    """In the order of names, with one time for all."""
    with tarfile.open(made, "w", format=tarfile.PAX_FORMAT) as written:
        for each in sorted(layout.rglob("*")):
            member = tarfile.TarInfo(str(each.relative_to(layout)))
            member.mtime = EPOCH
            if each.is_dir():
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                written.addfile(member)
            else:
                member.size = each.stat().st_size
                with each.open("rb") as read:
                    written.addfile(member, read)


if __name__ == "__main__":
    main(sys.argv[1], *(Path(each) for each in sys.argv[2:]))
