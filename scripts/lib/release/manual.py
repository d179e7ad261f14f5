"""Man pages and completions, from the definitions of the commands themselves."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from typer._completion_shared import get_completion_script

from agent.cli.main import app
from agent.pipeline.options import parser
from agent.version import VERSION

NAME = "federation-agent"
COMPLETIONS = {
    "bash": f"usr/share/bash-completion/completions/{NAME}",
    "zsh": f"usr/share/zsh/vendor-completions/_{NAME}",
    "fish": f"usr/share/fish/vendor_completions.d/{NAME}.fish",
}
EXIT_STATUSES = Path("docs/troubleshooting.md")
FILES = (
    ("/etc/federation-agent/agent.yml", "The configuration, unless another one is given."),
    ("/usr/share/doc/federation-agent/examples", "Configurations, alert rules and a dashboard."),
)


def completions() -> Iterator[tuple[str, str]]:
    variable = f"_{NAME.upper().replace('-', '_')}_COMPLETE"
    for shell, path in COMPLETIONS.items():
        yield path, get_completion_script(prog_name=NAME, complete_var=variable, shell=shell) + "\n"


def pages(epoch: int) -> Iterator[tuple[str, str]]:
    below = dict(_with_all_below(NAME, typer.main.get_command(app)))
    for words, command in below.items():
        shown = _report(parser()) if words == f"{NAME} report" else _command(words, command)
        lines = [*_head(words, command, epoch), *shown, *_end(words, below)]
        yield f"usr/share/man/man1/{_page(words)}.1", "\n".join(lines) + "\n"


def _with_all_below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command, and those of a group, by the words that call them."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _with_all_below(f"{words} {name}", inner)


def _page(words: str) -> str:
    return words.replace(" ", "-")


def _summary_and_more(command: Any) -> tuple[str, str]:
    """The first sentence of its help, and what follows."""
    first, _, others = (command.help or "").strip().partition("\n\n")
    summary, _, more = " ".join(first.split()).partition(". ")
    return summary.rstrip("."), f"{more}\n\n{others}".strip()


def _head(words: str, command: Any, epoch: int) -> Iterator[str]:
    day = datetime.fromtimestamp(epoch, UTC).date().isoformat()
    summary, _ = _summary_and_more(command)
    yield f'.TH {_page(words).upper()} 1 {day} "{NAME} {VERSION}" "User Commands"'
    yield ".SH NAME"
    yield f"{_plain(_page(words))} \\- {_plain(summary)}"


def _command(words: str, command: Any) -> Iterator[str]:
    arguments = " ".join(each.name.upper() for each in command.params if each.param_type_name == "argument")
    more = "\\fICOMMAND\\fR ..." if hasattr(command, "commands") else f"\\fI{arguments}\\fR" if arguments else ""
    yield from (".SH SYNOPSIS", f"\\fB{_plain(words)}\\fR [\\fIOPTIONS\\fR] {more}".rstrip())
    if more_text := _summary_and_more(command)[1]:
        yield from (".SH DESCRIPTION", *_paragraphs(more_text))
    if inner := getattr(command, "commands", {}):
        yield ".SH COMMANDS"
        for name, each in inner.items():
            yield from (".TP", f"\\fB{_plain(name)}\\fR", f"{_plain(_summary_and_more(each)[0])}.")
    yield ".SH OPTIONS"
    for each in command.params:
        if each.param_type_name == "option":
            value = "" if each.is_flag else f" \\fI{_plain(each.metavar or each.name.strip('_').upper())}\\fR"
            yield from (
                ".TP",
                ", ".join(f"\\fB{_plain(one)}\\fR" for one in each.opts) + value,
                _plain(each.help or ""),
            )
    yield from (".TP", "\\fB\\-h\\fR, \\fB\\-\\-help\\fR", "Show the help and exit.")
    if examples := [line.strip() for line in (command.epilog or "").splitlines() if line.startswith("  ")]:
        yield from (".SH EXAMPLES", ".nf", *map(_plain, examples), ".fi")


def _report(found: argparse.ArgumentParser) -> Iterator[str]:
    yield from (".SH SYNOPSIS", f"\\fB{_plain(found.prog)}\\fR [\\fIOPTIONS\\fR]", ".SH DESCRIPTION")
    yield from (_plain(found.description or ""), ".SH OPTIONS")
    for each in found._actions:  # noqa: SLF001 - argparse shows them in no other way
        name = each.metavar if isinstance(each.metavar, str) else "|".join(each.choices or ())
        value = "" if each.nargs == 0 else f" \\fI{_plain(name)}\\fR"
        yield from (".TP", ", ".join(f"\\fB{_plain(one)}\\fR" for one in each.option_strings) + value)
        yield _plain((each.help or "").replace("%%", "%"))


def _end(words: str, below: Iterable[str]) -> Iterator[str]:
    if words == NAME:
        yield from (".SH EXIT STATUS", *_exit_statuses(), ".SH FILES")
        for path, what in FILES:
            yield from (".TP", f"\\fI{_plain(path)}\\fR", what)
    yield ".SH SEE ALSO"
    others = [NAME] if words != NAME else [each for each in below if each != NAME]
    yield ",\n".join(f"\\fB{_plain(_page(each))}\\fR(1)" for each in others)


def _exit_statuses() -> Iterator[str]:
    """Those that all commands have, from the documents' table."""
    for status, what in re.findall(r"^\| (\d+) \| (?:all|`\w+`) \| (.*) \|$", EXIT_STATUSES.read_text(), re.MULTILINE):
        yield from (".TP", f"\\fB{status}\\fR", _plain(re.sub(r"\[([^]]+)\]\([^)]*\)|`", r"\1", what)))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        yield from (".PP", _plain(" ".join(paragraph.split())))


def _plain(text: str) -> str:
    """As roff takes it for what it is: a line may not begin with a dot or a quote."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
