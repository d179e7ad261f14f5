"""The broker of this machine, and those of other releases in directories that `make versions` prepares."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
DIRECTORY_VARIABLE = "FEDERATION_AGENT_VERSIONS_DIR"
SCRIPTS = "usr/lib/rabbitmq/bin"


class ReleaseMissingError(Exception):
    """A broker that a test needs is not on this machine."""


@dataclass(frozen=True, slots=True)
class Release:
    """A set of RabbitMQ scripts and how to run them."""

    root: Path = Path("/")

    @property
    def _chrooted(self) -> bool:
        return self.root != Path("/")

    def script(self, name: str) -> str:
        """The script as seen from inside; not Debian's wrapper in /usr/sbin, which changes the user."""
        return f"/{SCRIPTS}/{name}"

    def directory(self, outside: Path) -> Path:
        """Where a broker of this release may keep what would otherwise be in `outside`."""
        return self.root / "tmp" / outside.name if self._chrooted else outside

    def inside(self, path: Path) -> str:
        """The path as the broker has to be told it."""
        return f"/{path.relative_to(self.root)}"

    def command(self, arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        clean = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in environment.items()), *arguments]
        if not self._chrooted:
            return clean
        if os.geteuid() == 0:
            return ["chroot", str(self.root), *clean]
        # Back to this user, so that the broker can be signalled and its files removed without sudo.
        return ["sudo", "-n", "chroot", f"--userspec={os.getuid()}:{os.getgid()}", str(self.root), *clean]


HOST = Release()


def prepared() -> dict[str, Release]:
    """The releases that are there, by the name of their directory."""
    directory = Path(os.environ.get(DIRECTORY_VARIABLE) or PROJECT / "var" / "versions")
    roots = sorted(directory.resolve().iterdir()) if directory.is_dir() else []
    return {root.name: Release(root) for root in roots if (root / SCRIPTS / "rabbitmq-server").exists()}


def find(name: str | None, *, host: Release = HOST) -> Release:
    """The release of that name; of this machine without one."""
    if name is None:
        if not (host.root / SCRIPTS / "rabbitmq-server").exists():
            raise ReleaseMissingError("no rabbitmq-server on this machine: run `make setup`")
        return host
    try:
        return prepared()[name]
    except KeyError:
        raise ReleaseMissingError(f"no broker of release {name}: run `make versions`") from None
