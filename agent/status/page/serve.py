"""Serves the page: files of this package, under a policy that lets a browser speak to this agent and nobody else."""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import PurePath
from typing import Final

from aiohttp import ETag, web
from aiohttp.typedefs import Handler

INDEX: Final = "index.html"
FOLDER: Final = "/page/"
TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def routes() -> list[web.RouteDef]:
    """The page at `/`, and what it consists of below `/page/`."""
    static = resources.files(__package__).joinpath("static")
    files = {each.name: each.read_bytes() for each in static.iterdir() if PurePath(each.name).suffix in TYPES}
    return [
        web.get("/", _serving(INDEX, files[INDEX])),
        *(web.get(FOLDER + name, _serving(name, content)) for name, content in files.items() if name != INDEX),
    ]


def is_page(path: str) -> bool:
    """True if this is one of the page's own paths, which hold nothing that needs a token."""
    return path == "/" or path.startswith(FOLDER)


def _serving(name: str, content: bytes) -> Handler:
    tag = ETag(hashlib.sha256(content).hexdigest()[:16])
    content_type = TYPES[PurePath(name).suffix]

    async def serve(request: web.Request) -> web.Response:
        known = request.if_none_match or ()
        if tag in known:
            response = web.Response(status=304, headers=HEADERS)
        else:
            response = web.Response(body=content, headers=HEADERS, content_type=content_type, charset="utf-8")
        response.etag = tag
        return response

    return serve
