"""The agent on a machine of its own, as far as faults need one: its names come from `hosts` beside its configuration,
and `export` beside it is a file system of 64 KiB. Neither is seen by anybody else: they are mounted in a namespace.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

NEW_MOUNTS: Final = 0x20000
NEW_USERS: Final = 0x10000000
BIND: Final = 4096
PRIVATE: Final = 1 << 18
RECURSIVE: Final = 16384
NO_SERVER: Final = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"

_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), what)


def _mount(source: str | Path, target: str | Path, *, kind: bytes = b"", flags: int = BIND, data: bytes = b"") -> None:
    arguments = (str(source).encode(), str(target).encode(), kind, flags, data)
    _check(_LIBC.mount(*arguments), f"mount {source} on {target}")


def _begin() -> None:
    user, group = os.getuid(), os.getgid()
    _check(_LIBC.unshare(NEW_MOUNTS | (NEW_USERS if user else 0)), "unshare")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount("none", "/", flags=PRIVATE | RECURSIVE)


def become(directory: Path) -> None:
    _begin()
    servers = directory / "resolv.conf"
    servers.write_text(NO_SERVER)
    _mount(directory / "hosts", "/etc/hosts")
    _mount(servers, Path("/etc/resolv.conf").resolve())
    _mount("tmpfs", directory / "export", kind=b"tmpfs", flags=0, data=b"size=64k")


if __name__ == "__main__":
    from agent.cli.main import main

    become(Path(sys.argv[-1]).parent)
    main()
