"""Peers as sides of a measure: their packages in var/peers, of pinned releases, and a process of their own for each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.bench.load import WorkerError
from tests.bench.scene import Scene
from tests.bench.sides import Ready
from tests.bench.work import Shovel
from tests.lab.releases import PROJECT

PACKAGES: Final = PROJECT / "var" / "peers"
PIP: Final = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
INSTALLED: Final = 300.0


class NotInstalledError(Exception):
    """A package can't be had."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A module beside this one, which moves what the scene's shovel would. `requirement` is a package that the project
    itself doesn't need."""

    name: str
    module: str
    requirement: str = ""

    @property
    def _packages(self) -> Path:
        return PACKAGES / self.requirement

    def install(self) -> None:
        """Once; nothing half done stays."""
        if not self.requirement or self._packages.exists():
            return
        PACKAGES.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=PACKAGES) as directory:
            unfinished = Path(directory) / self.requirement
            command = [*PIP, "--target", str(unfinished), self.requirement]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALLED, check=False)
            except subprocess.TimeoutExpired as error:
                raise NotInstalledError(f"{self.requirement}: not within {INSTALLED:g} s") from error
            if done.returncode:
                raise NotInstalledError(f"{self.requirement}: {done.stderr.strip()}")
            unfinished.rename(self._packages)

    @contextmanager
    def ready(self, scene: Scene) -> Iterator[Ready]:
        """Everything is imported, and nothing connected."""
        assert isinstance(scene.work, Shovel)
        log = scene.pair.lab.directory / f"{scene.vhost}-{self.name}.log"
        command = [sys.executable, "-m", "tests.bench.peers", self.module]
        with (
            log.open("wb") as stderr,
            subprocess.Popen(
                [*command, scene.link_uri, scene.work.destination(scene), scene.queue],
                env={**os.environ, **scene.pair.lab.mark, "PYTHONPATH": str(self._packages)},
                cwd=PROJECT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            ) as process,
        ):
            assert process.stdin and process.stdout
            try:
                if not process.stdout.readline():
                    raise WorkerError(f"{self.name} ended with {process.wait()}: {log.read_text()[-2000:]}")
                yield Ready(process.stdin.close, processes={self.name: process.pid})
            finally:
                process.kill()


PEERS: Final = (
    Peer("mq-bridge", "by_mq_bridge", "mq-bridge-basic==1.2.0"),
    Peer("aio-pika", "by_aio_pika"),
    Peer("pika", "by_pika", "pika==1.4.4"),
)
