"""Responses: JSON, errors too, and `/metrics` in the form and the compression that a client asks for."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterable, Iterable
from typing import Any, Final

from aiohttp import web

from agent.status.metrics import Form

HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_GZIP: Final = 16 + zlib.MAX_WBITS
_LONGEST: Final = 1_000  # of a header that is read


def compact(value: Any) -> str:
    """The value as JSON: ASCII on one line, whatever the names of links contain."""
    return json.dumps(value, separators=(",", ":"))


def answer(value: Any, status: int = 200) -> web.Response:
    return answer_text(compact(value), status)


def answer_text(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type="application/json", headers=HEADERS)


async def compact_list(values: AsyncIterable[Any]) -> str:
    """The same of a list that may be long: it is written bit by bit."""
    return f"[{','.join([compact(value) async for value in values])}]"


async def answer_list(values: AsyncIterable[Any]) -> web.Response:
    return answer_text(await compact_list(values))


def refuse(status: int, reason: str, **headers: str) -> web.Response:
    response = answer({"error": reason}, status)
    response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return response


def form_of(request: web.Request, *, is_brief: bool) -> Form:
    asked = _weights(request.headers.get("Accept", ""))
    is_open = asked.get("application/openmetrics-text", 0.0)
    return Form(is_open=is_open > 0 and is_open >= asked.get("text/plain", 0.0), is_brief=is_brief)


async def scraped(request: web.Request, form: Form, pieces: Iterable[bytes]) -> web.Response:
    headers = {"Content-Type": OPEN if form.is_open else PLAIN, "Vary": "Accept, Accept-Encoding"}
    coding = _weights(request.headers.get("Accept-Encoding", ""))
    if coding.get("gzip", 0.0) <= 0:
        return web.Response(body=b"".join(pieces), headers=headers)
    return web.Response(body=await _compressed(pieces), headers=headers | {"Content-Encoding": "gzip"})


async def _compressed(pieces: Iterable[bytes]) -> bytes:
    """Compress piece by piece, so that messages don't wait for all of it. Level 1 is the fastest."""
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    written = []
    for piece in pieces:
        written.append(packer.compress(piece))
        await asyncio.sleep(0)
    return b"".join([*written, packer.flush()])


def _weights(header: str) -> dict[str, float]:
    """The values that a client accepts, in lower case, with the highest weight given to each."""
    found: dict[str, float] = {}
    for part in header[:_LONGEST].split(","):
        name, *parameters = (each.strip().lower() for each in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                weight = _number(parameter[2:])
        found[name] = max(weight, found.get(name, 0.0))
    return found


def _number(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 0.0
