"""Which agent the commands ask, and with which token, over a real socket."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent.cli import agent_commands, main, options
from agent.cli.options import CONFIG_VARIABLE
from agent.cli.remote import TOKEN_VARIABLE, RemoteError, reach
from agent.errors import ConfigurationError
from tests.unit.status.serving import TOKEN, Serve, Served


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (CONFIG_VARIABLE, TOKEN_VARIABLE, "FEDERATION_AGENT_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def served(serve: Serve) -> Served:
    return await serve(host="0.0.0.0", token=TOKEN)


@pytest.fixture
def file(served: Served, tmp_path: Path) -> Path:
    """As an image has it: the token in a file, and what comes after the agent may be of another machine."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    written = tmp_path / "agent.yml"
    http = {"listen": f"0.0.0.0:{served.port}", "token": "${file:token}"}
    unknown = {"uri": "amqp://a:${file:/nowhere}@h", "surprise": 1}
    written.write_text(json.dumps({"agent": {"http": http}, "downstream": unknown}))
    return written


async def links(url: str | None = None, token_file: Path | None = None, config: Path | None = None) -> int:
    return len(await asyncio.to_thread(lambda: reach(url, token_file, config).links()))


async def ran(*arguments: str) -> int:
    return await asyncio.to_thread(main.run, arguments)


async def test_address_and_token_come_from_the_configuration(
    served: Served, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await links(config=file) == 1
    monkeypatch.setenv(CONFIG_VARIABLE, str(file))
    assert await links() == 1
    assert await ran("pause", "--all") == options.OK
    assert served.asked
    monkeypatch.delenv(CONFIG_VARIABLE)
    monkeypatch.setattr("agent.cli.options.USUAL_CONFIG", file)
    assert await links() == 1


async def test_a_token_that_is_given_comes_before_that_of_the_configuration(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "another")
    with pytest.raises(RemoteError, match="the token is refused"):
        await links(config=file)
    assert await links(config=file, token_file=file.parent / "token") == 1


async def test_the_token_of_a_configuration_goes_to_another_address_only_on_request(
    served: Served, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, str(file))
    with pytest.raises(RemoteError, match="a token is needed"):
        await links(served.url)
    assert await links(served.url, config=file) == 1


async def test_a_token_that_is_missing_does_not_make_an_agent_down(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file.parent / "token").unlink()
    assert await ran("status", "--wait", "-c", str(file)) == 3
    said = capsys.readouterr().out
    assert said.startswith("UNKNOWN: agent http://127.0.0.1:")
    assert "${file:token}: there is no such file" in said
    assert await ran("status", "--format", "json", "-c", str(file)) == 3
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["level"] == "unknown"
    assert await ran("alive", "-c", str(file)) == options.OK  # needs none


async def test_the_one_on_call_is_answered_while_the_file_is_broken(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The agent runs on with what it read before."""
    broken = tmp_path / "broken.yml"
    broken.write_text("agent: {")
    monkeypatch.setattr("agent.cli.remote.url_of", lambda _: served.url)
    monkeypatch.setenv(CONFIG_VARIABLE, str(broken))
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert await links() == 1
    assert str(broken) in capsys.readouterr().err
    with pytest.raises(ConfigurationError):
        await links(config=broken)


async def test_whether_it_is_alive_is_one_line(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert await ran("alive", "--url", served.url) == options.OK
    assert capsys.readouterr() == ("", "")
    await served.server.stop()
    assert await ran("alive", "--url", served.url) == agent_commands.NOT_ALIVE
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "connection refused" in err


def test_a_command_needs_a_configuration_only_where_none_is_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("agent.cli.options.USUAL_CONFIG", tmp_path / "agent.yml")
    assert main.run(["plan"]) == options.BAD_USE
    assert "Missing option '-c'" in capsys.readouterr().err
    monkeypatch.setenv(CONFIG_VARIABLE, os.devnull)
    assert main.run(["plan"]) == options.BAD_CONFIGURATION
    assert capsys.readouterr().err.startswith(f"{os.devnull}:1:1: ")
