"""`/metrics` over a real socket: compressed where that is asked for, and in the format that is preferred."""

from __future__ import annotations

import gzip

import aiohttp
import pytest

from tests.unit.status.serving import Serve

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


async def scrape(url: str, **headers: str) -> tuple[dict[str, str], bytes]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=["Accept", "Accept-Encoding"]) as session,
        session.get(f"{url}/metrics", headers=sent) as found,
    ):
        assert found.status == 200
        return dict(found.headers), await found.read()


@pytest.mark.parametrize("coding", ["gzip", "deflate, GZIP;q=0.5", "gzip;q=1.0, identity;q=0.5"])
async def test_it_is_compressed_for_those_who_take_that(serve: Serve, coding: str) -> None:
    url = (await serve()).url
    _, plain = await scrape(url)
    headers, packed = await scrape(url, Accept_Encoding=coding)
    assert headers["Content-Encoding"] == "gzip"
    assert b"federation_agent_link_state{" in gzip.decompress(packed)
    assert len(packed) < len(plain) / 3


@pytest.mark.parametrize("coding", ["", "identity", "br", "gzip;q=0", "gzip;q=none"])
async def test_it_is_plain_for_others(serve: Serve, coding: str) -> None:
    headers, plain = await scrape((await serve()).url, Accept_Encoding=coding)
    assert "Content-Encoding" not in headers
    assert plain.startswith(b"# HELP ")


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        (PROMETHEUS, True),
        ("application/openmetrics-text", True),
        ("text/plain, application/openmetrics-text;q=0.1", False),
        ("application/openmetrics-text;q=0", False),
        ("*/*", False),
        ("", False),
    ],
)
async def test_the_format_is_the_preferred_one(serve: Serve, accept: str, is_open: bool) -> None:
    headers, text = await scrape((await serve()).url, Accept=accept)
    kind = "application/openmetrics-text" if is_open else "text/plain"
    assert headers["Content-Type"].startswith(kind)
    assert text.endswith(b"# EOF\n") is is_open
