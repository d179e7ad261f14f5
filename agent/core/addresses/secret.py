"""Secrets: values that are never shown, and that are removed from the text of a peer that received them.

Why: docs/decisions/0022-text-from-outside.md
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final
from urllib.parse import quote, quote_plus

HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Secret:
    """Holds a password or token; only `reveal` returns it, for sending."""

    _value: str = field(repr=False)

    def reveal(self) -> str:
        return self._value

    def __str__(self) -> str:
        return HIDDEN


REDACTED: Final = "[redacted]"
SHORTEST: Final = 4  # a shorter one protects nothing, and is in every text: the gap would show what it is
_RUN: Final = 8  # this much of a longer secret is hidden too: brokers cut their texts, and a token is longer than those


def redacted(text: str, secret: Secret, *, user: str = "") -> str:
    """The text without the secret, or eight characters of it, in plain or as encoded in URIs, JSON and HTTP. Case is
    ignored, since some headers ignore it. A secret that is part of the user's name stays: brokers name users, and
    guest/guest is not a secret.
    """
    hidden = [False] * len(text)
    for form in _forms(secret.reveal(), user):
        length = min(len(form), _RUN)
        for at in range(len(text) - length + 1):
            run = text[at : at + length].lower()
            if run in form and run not in user.lower():
                hidden[at : at + length] = [True] * length
    runs = groupby(zip(text, hidden, strict=True), key=itemgetter(1))
    return "".join(REDACTED if is_hidden else "".join(letter for letter, _ in run) for is_hidden, run in runs)


def _forms(value: str, user: str) -> set[str]:
    if len(value) < SHORTEST or value == user:
        return set()
    encoded = (quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1], repr(value)[1:-1])
    return {form.lower() for form in (value, *encoded, *_in_base64(value.encode()))}


def _in_base64(value: bytes) -> list[str]:
    """Its forms after 0, 1 or 2 other bytes, as in a login; characters with bits of other bytes are omitted."""
    wholes = (base64.b64encode(bytes(before) + value).decode() for before in range(3))
    forms = (whole[(0, 2, 3)[before] : 8 * (before + len(value)) // 6] for before, whole in enumerate(wholes))
    return [form for form in forms if len(form) >= SHORTEST]
