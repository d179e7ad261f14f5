"""Sites and agents, as the tests of federation have them, brokers that no other test uses, and Docker Compose."""

import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import broker, second_broker
from tests.integration.federation.conftest import agent_of, site_on
from tests.lab.releases import Release, find
from tests.lab.waiting import DEADLINE

__all__ = ["agent_of", "broker", "compose", "second_broker", "site_on"]

Compose = Callable[[Path], dict[str, Any]]


class ComposeError(Exception):
    """Compose doesn't take a file, or has something to say about it."""


@pytest.fixture
def compose() -> Iterator[Compose]:
    """What Compose understands of a file; only in tests marked `versions`, since it came with one of the brokers."""
    with ExitStack() as folders:
        yield lambda file: _understood(find("trixie"), file, folders)


def _understood(release: Release, file: Path, folders: ExitStack) -> dict[str, Any]:
    folder = release.directory(Path("/tmp") / f"compose-{secrets.token_hex(4)}")
    folder.mkdir()
    folders.callback(shutil.rmtree, folder)
    copied = shutil.copy(file, folder)
    words = ["/usr/bin/docker-compose", "--file", release.inside(Path(copied)), "config", "--format", "json"]
    command = release.command(words, {"PATH": os.defpath, "HOME": "/nonexistent"})
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE)
    if done.returncode != 0 or done.stderr:
        raise ComposeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
