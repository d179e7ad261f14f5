"""`bundle`: an archive for a report of a fault. It names brokers, vhosts, users and links, and holds no secret."""

from __future__ import annotations

import io
import os
import platform
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agent.cli import output
from agent.cli.remote import Remote, RemoteError
from agent.definitions.sources.written_secrets import without_secrets
from agent.errors import CannotStartError, ConfigurationError
from agent.version import VERSION, build

OWN: Final = 0o600


def write_bundle(remote: Remote, path: Path | None, config: Path | None) -> Path:
    """Names the parts that can't be had: an agent that doesn't answer is a reason for a report. Replaces no file."""
    path = path or Path(time.strftime("federation-agent-%Y%m%d-%H%M%S.tar.gz", time.gmtime()))
    parts: dict[str, Callable[[], object]] = {
        "versions.json": lambda: {
            "federation-agent": VERSION,
            "build": build(),
            "python": platform.python_version(),
            "machine": platform.platform(),
        },
        "overview.json": remote.overview,
        "causes.json": remote.causes,
        "links.json": remote.links,
        "transitions.json": lambda: remote.transitions(after=0),
        "metrics.txt": remote.metrics,
    }
    if config is not None:
        parts["configuration.yml"] = lambda: without_secrets(str(config))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWN)
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, ask in parts.items():
                _add(archive, name, ask)
    except OSError as error:
        raise CannotStartError(f"{str(path)!r} can't be written: {error.strerror or error}") from error
    return path


def _add(archive: tarfile.TarFile, name: str, ask: Callable[[], object]) -> None:
    try:
        found = ask()
        text = found if isinstance(found, str) else output.as_json(found)
    except (RemoteError, ConfigurationError) as error:
        output.complain(f"without {name}: {error}")
        name, text = f"{name}.missing", f"{error}\n"
    data = text.encode()
    member = tarfile.TarInfo(f"federation-agent/{name}")
    member.size, member.mtime, member.mode = len(data), int(time.time()), OWN
    archive.addfile(member, io.BytesIO(data))
