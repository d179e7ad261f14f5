"""The page's files as a browser is given them."""

import re
from collections.abc import AsyncIterator
from importlib import resources

import aiohttp
import pytest
from aiohttp import web

from agent.status.page import serve
from tests.lab.ports import Ports

STATIC = resources.files("agent.status.page").joinpath("static")
FILES = sorted(each.name for each in STATIC.iterdir())
ASKED = re.compile(r"""(?:(?:src|href)="|from "|url\()([^"#)][^")]*)""")


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    ports = Ports()
    port = ports.take()
    application = web.Application()
    application.add_routes(serve.routes())
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield session
    await runner.cleanup()
    ports.release()


async def test_every_file_has_its_type_and_the_policy(client: aiohttp.ClientSession) -> None:
    for name in FILES:
        path = "/" if name == "index.html" else f"/page/{name}"
        async with client.get(path) as answer:
            assert answer.status == 200
            assert answer.content_type == serve.TYPES[f".{name.rsplit('.', 1)[1]}"]
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; ")
            assert "unsafe" not in answer.headers["Content-Security-Policy"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert await answer.read() == STATIC.joinpath(name).read_bytes()


async def test_what_a_browser_has_it_is_not_sent_again(client: aiohttp.ClientSession) -> None:
    async with client.get("/page/main.js") as answer:
        tag = answer.headers["ETag"]
    async with client.get("/page/main.js", headers={"If-None-Match": tag}) as answer:
        assert (answer.status, await answer.read()) == (304, b"")
    async with client.get("/page/main.js", headers={"If-None-Match": '"another"'}) as answer:
        assert answer.status == 200


async def test_nothing_else_is_served(client: aiohttp.ClientSession) -> None:
    for path in ("/page/", "/page/serve.py", "/page/..%2fserve.py", "/page/%2e%2e/serve.py", "/index.html"):
        async with client.get(path) as answer:
            assert answer.status == 404


@pytest.mark.parametrize("name", FILES)
def test_files_ask_for_none_but_each_other(name: str) -> None:
    text = STATIC.joinpath(name).read_text()
    asked = {found.removeprefix("/page/").removeprefix("./") for found in ASKED.findall(text)}
    assert asked <= set(FILES)
    assert set(re.findall(r"https?://[^\s\"'<>`]+", text)) <= {"http://www.w3.org/2000/svg"}


def test_the_document_has_neither_script_nor_style_of_its_own() -> None:
    text = STATIC.joinpath("index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text)


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_no_text_becomes_markup(name: str) -> None:
    text = STATIC.joinpath(name).read_text()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setTimeout\(\"", text
    )
