"""Every command's help shows how it is used, and what it shows is accepted."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import typer

from agent.cli.main import app
from agent.pipeline.options import parse

GROUP: Any = typer.main.get_command(app)
GROUPS = ("migrate", "quarantine", "standby")
COMMANDS = {
    **{name: command for name, command in GROUP.commands.items() if name not in {*GROUPS, "report"}},
    **{f"{group} {name}": each for group in GROUPS for name, each in GROUP.commands[group].commands.items()},
}


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_there_and_are_accepted(name: str) -> None:
    command = COMMANDS[name]
    said = command.get_help(command.context_class(command, info_name=name)).partition("\n  Examples:\n")[2]
    found = [line.removeprefix("    federation-agent ") for line in said.splitlines() if line]
    assert found
    for each in found:
        words = shlex.split(each)
        assert words[: len(name.split())] == name.split()
        ends = [at for at, word in enumerate(words) if word in {">", "&&", "||"}]
        command.make_context(name, words[len(name.split()) : ends[0] if ends else None])


def test_the_reports_own_help_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])
    assert "Examples: federation-agent report --input " in " ".join(capsys.readouterr().out.split())
