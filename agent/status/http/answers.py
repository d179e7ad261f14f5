"""JSON responses, errors too."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable
from typing import Any, Final

from aiohttp import web

HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def compact(value: Any) -> str:
    """ASCII on one line, whatever the names of links contain."""
    return json.dumps(value, separators=(",", ":"))


def answer(value: Any, status: int = 200) -> web.Response:
    return answer_text(compact(value), status)


def answer_text(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type="application/json", headers=HEADERS)


async def answer_list(values: AsyncIterable[Any]) -> web.Response:
    text = f"[{','.join([compact(value) async for value in values])}]"
    return web.Response(text=text, content_type="application/json", headers=HEADERS)


async def with_list(value: dict[str, Any], name: str, items: AsyncIterable[Any]) -> str:
    """An object in JSON with one more member, a list that may be long: it is written bit by bit."""
    written = [compact(item) async for item in items]
    return f"{compact(value)[:-1]},{compact(name)}:[{','.join(written)}]}}"


def refuse(status: int, reason: str, **headers: str) -> web.Response:
    response = answer({"error": reason}, status)
    response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return response
