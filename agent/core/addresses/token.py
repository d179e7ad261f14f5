"""When a JSON Web Token that is used as a password expires; it is neither verified nor stored."""

from __future__ import annotations

import base64
import binascii
import json
import math


def expiry(text: str) -> float | None:
    """Seconds since 1970; None if it is not a token or never expires."""
    parts = text.split(".")
    if len(parts) != 3:
        return None
    claims = parts[1]
    try:
        found = json.loads(base64.b64decode(claims + "=" * (-len(claims) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        return None
    end = found.get("exp") if isinstance(found, dict) else None
    if isinstance(end, bool) or not isinstance(end, int | float) or not 0 <= end < 1e12 or math.isnan(end):
        return None
    return float(end)
