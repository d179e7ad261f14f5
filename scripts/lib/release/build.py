"""Wheel, sdist, Debian packages and lists of their contents; called by scripts/release in the export of a commit.

usage: build.py SOURCE OUTPUT WORK. SOURCE_DATE_EPOCH is the time of all in them. The same commit, the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

import manual
import sbom
from setuptools import build_meta

from agent.version import VERSION

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
NAME = "federation-agent"
HOME = f"opt/{NAME}"
EXAMPLES = ("config", "deploy/prometheus/rules", "deploy/grafana/dashboards")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
LOCK = Path("locks/traffic.lock")  # as the image: `check --deliver` needs aio-pika
BARE_LOCK = Path("locks/agent.lock")
OLDEST_GLIBC = 36  # of Debian 12


@dataclass(frozen=True)
class Debian:
    release: int
    python: str

    @property
    def environment(self) -> dict[str, str]:
        """What markers of the lock are judged by."""
        return {
            "python_version": self.python, "python_full_version": f"{self.python}.0", "implementation_name": "cpython",
            "platform_python_implementation": "CPython", "sys_platform": "linux", "platform_system": "Linux",
            "os_name": "posix", "platform_machine": MACHINES[architecture()],
        }  # fmt: skip


DEBIANS = (Debian(12, "3.11"), Debian(13, "3.13"))


def main(source: Path, output: Path, work: Path) -> None:
    os.chdir(source)
    sdist(output, work)
    wheel = output / build_meta.build_wheel(str(output))
    for debian in DEBIANS:
        there = package_of(debian, wheel, output, work / str(debian.release))
    needed = sbom.locked(BARE_LOCK, DEBIANS[-1].environment)
    if found := sbom.differences(needed, {name: there[name] for name in needed.keys() & there.keys()}):
        raise SystemExit(f"what the wheel needs is not what is there: {'; '.join(found)}")
    contents = sbom.document("wheel and sdist", VERSION, needed, there, epoch=EPOCH)
    (output / f"{NAME}-{VERSION}.cdx.json").write_text(contents)


def sdist(output: Path, work: Path) -> None:
    """Packed anew, as setuptools notes the time of its own build."""
    made = work / build_meta.build_sdist(str(work))
    packed = io.BytesIO()
    with tarfile.open(made) as read, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as written:
        for each in sorted(read.getmembers(), key=lambda each: each.name):
            each.mtime, each.uid, each.gid, each.uname, each.gname, each.pax_headers = EPOCH, 0, 0, "", "", {}
            written.addfile(each, read.extractfile(each) if each.isfile() else None)
    (output / made.name).write_bytes(gzip.compress(packed.getvalue(), mtime=EPOCH))


def architecture() -> str:
    return said("dpkg", "--print-architecture")


def said(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def package_of(debian: Debian, wheel: Path, output: Path, work: Path) -> dict[str, Distribution]:
    """The packages that are in it."""
    tree, version = work / "tree", f"{VERSION}+deb{debian.release}"
    packages = tree / HOME / f"lib/python{debian.python}/site-packages"
    packages.mkdir(parents=True)
    for each in [*wheels(debian, work / "wheels"), wheel]:
        unpack(each, packages)
    wanted, there = sbom.locked(LOCK, debian.environment), sbom.installed(packages)
    if found := sbom.differences(wanted, there):
        raise SystemExit(f"what is installed is not what is locked: {'; '.join(found)}")
    name = f"{NAME}_{version}_{architecture()}.deb"
    contents = sbom.document(name, VERSION, wanted, there, epoch=EPOCH)
    program(tree, debian)
    system_files(tree, version, contents)
    control(tree, version, debian)
    # One thread: how many there are shows in the bytes. A higher level takes ten times as long for a seventh of them.
    said("dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--threads-max=1", "--build", str(tree), str(output / name))
    (output / f"{Path(name).stem}.cdx.json").write_text(contents)
    return there


def wheels(debian: Debian, folder: Path) -> list[Path]:
    """Only what the lock names by hash, and no source: nothing of others runs here."""
    machine = MACHINES[architecture()]
    platforms = [f"manylinux_2_{glibc}_{machine}" for glibc in range(OLDEST_GLIBC, 4, -1)]
    platforms += [f"manylinux{year}_{machine}" for year in (2014, 2010, 1)]
    abi = f"cp{debian.python.replace('.', '')}"
    said(
        sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps",
        "--require-hashes", "--only-binary", ":all:", "--implementation", "cp", "--python-version", debian.python,
        "--abi", abi, "--abi", "abi3", "--abi", "none", *(f"--platform={each}" for each in (*platforms, "any")),
        "--dest", str(folder), "--requirement", str(LOCK),
    )  # fmt: skip
    return sorted(folder.iterdir())


def unpack(wheel: Path, packages: Path) -> None:
    """As pip installs a wheel, without scripts and headers, which nothing here uses."""
    with zipfile.ZipFile(wheel) as archive:
        for each in archive.infolist():
            first, _, rest = each.filename.partition("/")
            if first.endswith(".data"):
                kind, _, rest = rest.partition("/")
                if kind not in {"purelib", "platlib"}:
                    continue
                each.filename = rest
            if ".." in each.filename.split("/") or each.filename.startswith("/"):
                raise SystemExit(f"{wheel.name}: {each.filename} leads out of it")
            archive.extract(each, packages)


def program(tree: Path, debian: Debian) -> None:
    """A virtual environment of Debian's Python, as `python3 -m venv --without-pip` makes it, and the command."""
    programs = tree / HOME / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(f"/usr/bin/python{debian.python}")
    (programs / "python").symlink_to("python3")
    put(
        tree / HOME / "pyvenv.cfg",
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {debian.python}\n",
    )
    command = f"#!/{HOME}/bin/python3 -I\nfrom agent.cli.main import main\n\nmain()\n"
    put(programs / NAME, command, mode=0o755)
    linked = tree / "usr/bin" / NAME
    linked.parent.mkdir(parents=True)
    linked.symlink_to(f"/{HOME}/bin/{NAME}")


def system_files(tree: Path, version: str, contents: str) -> None:
    (tree / "etc" / NAME).mkdir(parents=True)
    put(tree / f"usr/lib/systemd/system/{NAME}.service", unit())
    for path, text in manual.pages(EPOCH):
        put_compressed(tree / path, text)
    for path, text in manual.completions():
        put(tree / path, text)
    documents = tree / "usr/share/doc" / NAME
    put(documents / "copyright", Path("deploy/debian/copyright").read_text())
    put(documents / "sbom.cdx.json", contents)
    day = said("date", "--utc", f"--date=@{EPOCH}", "--rfc-email")
    maintainer = next(line for line in Path("deploy/debian/control").read_text().splitlines() if "Maintainer" in line)
    changes = f"{NAME} ({version}) stable; urgency=medium\n\n  * Version {VERSION}: see CHANGELOG.md.\n\n"
    put_compressed(documents / "changelog", f"{changes} -- {maintainer.partition(': ')[2]}  {day}\n")
    for each in (Path("CHANGELOG.md"), *Path("docs").glob("*.md")):
        put(documents / each, each.read_text(encoding="utf-8"))
    for folder in EXAMPLES:
        shutil.copytree(folder, documents / "examples" / Path(folder).name)
    put(tree / "usr/share/lintian/overrides" / NAME, Path("deploy/debian/lintian-overrides").read_text())


def unit() -> str:
    """With the package's own user, whose group may read /etc/federation-agent, and where that has a configuration."""
    text = Path(f"deploy/systemd/{NAME}.service").read_text()
    for found, instead in (
        ("[Service]\n", f"ConditionPathExists=/etc/{NAME}/agent.yml\n\n[Service]\n"),
        ("DynamicUser=yes\n", f"User={NAME}\nGroup={NAME}\n"),
        (f"ConfigurationDirectory={NAME}\n", ""),
        (f"ExecStart=/usr/local/lib/{NAME}/", f"ExecStart=/{HOME}/"),
    ):
        if text.count(found) != 1:
            raise SystemExit(f"the unit has no single {found!r}")
        text = text.replace(found, instead)
    return text


def control(tree: Path, version: str, debian: Debian) -> None:
    folder = tree / "DEBIAN"
    size = sum(-(-each.lstat().st_size // 1024) or 1 for each in tree.rglob("*"))
    text = Path("deploy/debian/control").read_text()
    for name, value in {
        "VERSION": version, "ARCHITECTURE": architecture(), "SIZE": str(size), "PYTHON": f"python{debian.python}",
    }.items():  # fmt: skip
        text = text.replace(f"@{name}@", value)
    put(folder / "control", text)
    sums = sorted(
        each for each in tree.rglob("*") if each.is_file() and not each.is_symlink() and folder not in each.parents
    )
    lines = (f"{hashlib.md5(each.read_bytes()).hexdigest()}  {each.relative_to(tree)}\n" for each in sums)
    put(folder / "md5sums", "".join(lines))
    for script in ("postinst", "prerm", "postrm"):
        put(folder / script, Path(f"deploy/debian/{script}").read_text(), mode=0o755)


def put(path: Path, text: str, *, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def put_compressed(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(*(Path(each).absolute() for each in sys.argv[1:]))
