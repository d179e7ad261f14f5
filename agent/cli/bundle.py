"""`bundle`: an archive for a report of a fault. It names brokers, vhosts, users and links, and holds no secret."""

from __future__ import annotations

import io
import os
import platform
import tarfile
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from agent.cli import output
from agent.cli.remote import Remote, RemoteError
from agent.definitions.sources.written_secrets import without_secrets
from agent.errors import CannotStartError, ConfigurationError

OWN: Final = 0o600


def write_bundle(remote: Remote, path: Path | None, config: Path | None) -> Path:
    """Whatever can't be had is named instead: an agent that doesn't answer is a reason for a report. Never replaces a
    file."""
    path = path or Path(time.strftime("federation-agent-%Y%m%d-%H%M%S.tar.gz", time.gmtime()))
    parts = _parts(remote, config)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWN)
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, make in parts.items():
                _add(archive, *_made(name, make))
    except OSError as error:
        raise CannotStartError(f"{str(path)!r} can't be written: {error.strerror or error}") from error
    return path


def _parts(remote: Remote, config: Path | None) -> Mapping[str, Callable[[], str]]:
    asked: dict[str, Callable[[], object]] = {
        "versions.json": _versions,
        "overview.json": remote.overview,
        "causes.json": remote.causes,
        "links.json": remote.links,
        "transitions.json": lambda: remote.transitions(after=0),
    }
    parts: dict[str, Callable[[], str]] = {name: _as_json(ask) for name, ask in asked.items()}
    parts["metrics.txt"] = remote.metrics
    if config is not None:
        parts["configuration.yml"] = lambda: without_secrets(str(config))
    return parts


def _as_json(ask: Callable[[], object]) -> Callable[[], str]:
    return lambda: output.as_json(ask())


def _versions() -> dict[str, str]:
    return {
        "federation-agent": version("federation-agent"),
        "python": platform.python_version(),
        "machine": platform.platform(),
    }


def _made(name: str, make: Callable[[], str]) -> tuple[str, str]:
    try:
        return name, make()
    except (RemoteError, ConfigurationError) as error:
        output.complain(f"without {name}: {error}")
        return f"{name}.missing", f"{error}\n"


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    data = text.encode()
    member = tarfile.TarInfo(f"federation-agent/{name}")
    member.size, member.mtime, member.mode = len(data), int(time.time()), OWN
    archive.addfile(member, io.BytesIO(data))
