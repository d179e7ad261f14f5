"""Where images get Debian's packages from, and what they name as their source."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.deploy.prometheus import ROOT

OFFICIAL = ["http://deb.debian.org/debian", "http://security.debian.org/debian-security"]
HERE = """#!/bin/sh
case $* in
  *Label:\\ Debian-Security) echo http://near/security ;;
  *Label:\\ Debian) echo http://near/debian ;;
esac
"""


def sources(folder: Path, *, apt: str, command: str, **environment: str) -> list[list[str]]:
    """`sources.list` by that command, on a machine whose apt-get is that script."""
    (folder / "apt-get").write_text(apt)
    (folder / "apt-get").chmod(0o755)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"source '{ROOT}/scripts/lib/debian.sh'; {command}"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": f"{folder}:{os.environ['PATH']}"} | environment,
    )
    return [line.split() for line in done.stdout.splitlines()]


def suites(mirror: str, security: str) -> list[list[str]]:
    return [
        ["deb", mirror, "bookworm", "main"],
        ["deb", mirror, "bookworm-updates", "main"],
        ["deb", security, "bookworm-security", "main"],
    ]


FETCHED = 'debian_sources bookworm "$(debian_mirror)" "$(security_mirror)"'


def test_packages_come_from_where_the_machine_has_them_security_fixes_too(tmp_path: Path) -> None:
    found = sources(tmp_path, apt=HERE, command=FETCHED)
    assert found == suites("http://near/debian", "http://near/security")


def test_a_mirror_that_is_given_comes_before_that_of_the_machine(tmp_path: Path) -> None:
    found = sources(tmp_path, apt=HERE, command=FETCHED, FEDERATION_AGENT_MIRROR="http://given/debian")
    assert found == suites("http://given/debian", "http://near/security")


@pytest.mark.parametrize("apt", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\n"])
def test_without_a_word_of_apt_they_come_from_debian(tmp_path: Path, apt: str) -> None:
    assert sources(tmp_path, apt=apt, command=FETCHED) == suites(*OFFICIAL)


def test_an_image_names_debian_itself(tmp_path: Path) -> None:
    assert sources(tmp_path, apt=HERE, command="debian_sources bookworm") == suites(*OFFICIAL)
    assert 'debian_sources "$release" >"$made/etc/apt/sources.list"' in (ROOT / "scripts/lib/release/base").read_text()
