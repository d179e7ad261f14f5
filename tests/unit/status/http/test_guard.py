"""What is kept from whom, over a real socket."""

from __future__ import annotations

import asyncio
import json
import logging
from socket import gethostname

import pytest
from aiohttp.test_utils import make_mocked_request

from agent.cli.remote import BY_A_PROGRAM, Remote
from agent.core.addresses.secret import Secret
from agent.core.settings import HttpSettings
from agent.status.http import guard
from agent.status.http.guard import Guard, is_loopback
from tests.unit.status.serving import TOKEN, Serve
from tests.unit.status.test_board import LINK

PAUSE = f"/api/links/{LINK.id}/pause"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
async def test_pages_of_other_sites_change_nothing(serve: Serve, headers: dict[str, str]) -> None:
    served = await serve()
    assert (await served.ask(PAUSE, "POST", **headers))[0] == 403
    native = f"/api/federation-links/vhost/%2F/{LINK.id}/n/restart"
    assert (await served.ask(native, "DELETE", **headers))[0] == 403
    assert served.asked == []


async def test_its_own_page_and_programs_do(serve: Serve) -> None:
    served = await serve()
    own = {"Origin": served.url, "Sec_Fetch_Site": "same-origin"}
    assert (await served.ask(PAUSE, "POST", **own))[0] == 200
    assert (await served.ask(PAUSE, "POST"))[0] == 200
    behind_a_proxy = {"Origin": "https://agent.example", "Sec_Fetch_Site": "same-origin"}
    assert (await served.ask(PAUSE, "POST", **behind_a_proxy))[0] == 200
    assert len(served.asked) == 3


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9419", "127.0.0.1.evil.example", "[", ""])
async def test_names_that_others_may_point_here_are_not_answered(serve: Serve, host: str) -> None:
    served = await serve()
    assert (await served.ask("/api/links", Host=host))[0] == 403
    assert (await served.ask(PAUSE, "POST", Host=host))[0] == 403


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:9419", "agent.localhost", "10.0.0.7:80"])
async def test_addresses_and_this_machine_s_own_names_are(serve: Serve, host: str) -> None:
    assert (await (await serve()).ask("/api/links", Host=host))[0] == 200


@pytest.mark.parametrize("host", ["localhost", "LocalHost", "127.0.0.9", "::1"])
def test_what_only_this_machine_reaches(host: str) -> None:
    assert is_loopback(host)
    assert not any(map(is_loopback, ("0.0.0.0", "::", "localhost.example")))


async def test_a_token_counts_by_any_name_and_its_lack_can_be_mended(serve: Serve) -> None:
    served = await serve(token=TOKEN)
    for path, method in (("/api/links", "GET"), (PAUSE, "POST")):
        assert (await served.ask(path, method, token=TOKEN, Host="agent.example"))[0] == 200
        assert (await served.ask(path, method, Host="agent.example"))[0] == 401
        assert (await served.ask(path, method, token="wrong", Host="agent.example"))[0] == 401
    assert (await served.ask("/api/links"))[0] == 200


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_probes_and_the_page_s_files_have_any_name(serve: Serve, token: str | None) -> None:
    served = await serve(token=token)
    served.board.ready = True
    for path in ("/livez", "/readyz", "/", "/page/main.js"):
        assert (await served.ask(path, "HEAD", Host="agent.example"))[0] == 200


@pytest.mark.parametrize(
    ("given", "status"),
    [("bearer {}", 200), ("BEARER  {}", 200), ("Basic {}", 401), ("{}", 401), ("Bearer", 401), ("Bearer {}x", 401)],
)
async def test_a_token_is_given_in_any_letters_of_bearer(serve: Serve, given: str, status: int) -> None:
    served = await serve(token=TOKEN)
    assert (await served.ask(PAUSE, "POST", Authorization=given.format(TOKEN)))[0] == status


async def test_any_name_leads_to_an_agent_that_others_may_reach(serve: Serve) -> None:
    served = await serve(host="0.0.0.0", token=TOKEN)
    assert (await served.ask("/api/links", token=TOKEN, Host="agent.example"))[0] == 200
    assert (await served.ask(PAUSE, "POST", token=TOKEN, Host="agent.example", Origin="http://evil.example"))[0] == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9419", "", "["])
@pytest.mark.parametrize("headers", [{}, {"Origin": "http://{}"}, {"Sec_Fetch_Site": "same-origin"}])
@pytest.mark.parametrize("program", [{}, {"X_Federation_Agent": "1"}])
async def test_a_page_with_a_name_of_its_own_changes_nothing_where_anyone_may_look(
    serve: Serve, host: str, headers: dict[str, str], program: dict[str, str]
) -> None:
    served = await serve(host="0.0.0.0", anonymous=True)
    sent = {name: value.format(host) for name, value in headers.items()} | program
    is_program = bool(program) and not headers
    for path, method in ((PAUSE, "POST"), (f"/api/federation-links/vhost/%2F/{LINK.id}/n/restart", "DELETE")):
        assert ((await served.ask(path, method, Host=host, **sent))[0] == 403) is not is_program
    assert bool(served.asked) is is_program
    assert (await served.ask("/api/links", Host="agent.example"))[0] == 200


@pytest.mark.parametrize("host", ["10.0.0.7:9419", "[fd00::7]", "localhost:9419", gethostname(), gethostname().upper()])
async def test_without_a_token_an_address_or_the_machine_s_name_serves_for_changes(serve: Serve, host: str) -> None:
    served = await serve(host="0.0.0.0", anonymous=True)
    assert (await served.ask(PAUSE, "POST", Host=host))[0] == 200
    own = {"Origin": f"http://{host}", "Sec_Fetch_Site": "same-origin"}
    assert (await served.ask(PAUSE, "POST", Host=host, **own))[0] == 200
    other = {"Origin": "http://evil.example"}
    assert (await served.ask(PAUSE, "POST", Host=host, **other))[0] == 403


async def test_the_commands_change_links_by_any_name_where_no_token_is_wanted(serve: Serve) -> None:
    served = await serve(host="0.0.0.0", anonymous=True)
    assert BY_A_PROGRAM == guard.BY_A_PROGRAM
    assert (await served.ask(PAUSE, "POST", Host="agent.example", **{BY_A_PROGRAM: "1"}))[0] == 200
    assert await asyncio.to_thread(Remote(served.url, None).act, LINK.id, "pause")


async def test_what_a_path_takes_is_told(serve: Serve) -> None:
    served = await serve()
    assert await served.ask("/api/links", "OPTIONS") == (204, None)
    assert await served.ask("/api/links", "HEAD") == (200, None)
    assert await served.ask("/metrics", "HEAD") == (200, None)
    status, said = await served.ask("/api/links", "PUT")
    assert (status, said) == (405, {"error": "this path takes GET, HEAD, OPTIONS"})
    assert (await served.ask("/nowhere", "OPTIONS"))[0] == 404


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /api/events?access_token=s3ntinel HTP/9\r\n\r\n",
        b"GET /api/links HTTP/1.1\r\nno colon s3ntinel\r\n\r\n",
        b"\x16\x03\x01 s3ntinel\r\n\r\n",
        b"GET /" + b"s3ntinel" * 2000 + b" HTTP/1.1\r\n\r\n",
        b"POST /api/links/x/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: s3ntinel\r\n\r\n",
    ],
)
async def test_what_is_no_http_gets_json_and_is_not_repeated(
    serve: Serve, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve()
    caplog.set_level(logging.DEBUG)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(sent)
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.transport.abort()  # the server may not take the rest
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    assert "the request is invalid" in json.loads(body)["error"]
    assert b"s3ntinel" not in answer
    assert "s3ntinel" not in caplog.text


async def test_what_nobody_foresaw_is_json_too(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    served = await serve()
    served.board.reloaded_at = float("inf")
    status, said = await served.ask("/api/overview")
    assert (status, said) == (500, {"error": "the agent failed to answer; its log shows why"})
    assert "OverflowError" in capsys.readouterr().out


def test_a_token_that_is_renewed_counts_at_once() -> None:
    tokens = [Secret("second"), Secret("third"), None]
    guard = Guard(HttpSettings(token=Secret("first")), lambda: tokens[0])

    def refuses(token: str) -> bool:
        headers = {"Host": "localhost", "Authorization": f"Bearer {token}"}
        return guard.refusal(make_mocked_request("POST", PAUSE, headers=headers)) is not None

    assert (refuses("first"), refuses("second")) == (True, False)
    tokens.pop(0)
    assert (refuses("second"), refuses("third")) == (True, False)
    tokens.pop(0)  # without one everyone could change what runs
    assert (refuses("first"), refuses("")) == (False, True)
