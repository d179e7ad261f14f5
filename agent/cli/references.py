"""`${env:…}` and `${file:…}` in options, so that no secret is on the command line."""

from __future__ import annotations

import os

from agent.definitions.document.interpolate import Interpolator
from agent.errors import UsageError


def resolved(text: str, option: str) -> str:
    """Files are relative to where the command runs; `option` begins the error."""

    def refuse(_: object, message: str) -> None:
        raise UsageError(f"{option}: {message}")

    return Interpolator(os.environ, ".", refuse, refuse).resolve(text, ())
