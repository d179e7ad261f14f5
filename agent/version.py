"""The version of the agent, and the commit that it was built from."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Final

VERSION: Final = "1.0.0"
_BUILD: Final = Path(__file__).with_name("build.txt")
_SHOWN: Final = 12  # digits of the commit's hash


def build() -> str | None:
    """The commit. None in a checkout: git fills the file in where it makes an archive of it, such as for a release."""
    commit = _BUILD.read_text(encoding="ascii").strip()
    return None if commit.startswith("$") else commit[:_SHOWN]


def described() -> str:
    commit = build()
    return f"{VERSION} ({f'build {commit}, ' if commit else ''}Python {platform.python_version()})"
