"""Commands that turn files into others, and ask nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from agent.cli import output
from agent.cli.options import OK, FormatOption, examples
from agent.errors import ConfigurationError, Place, Problem

MAX_LEGACY: Final = 512 * 1024  # bytes; far more than any 2.x configuration, and parsing more takes seconds
MAX_OBJECTIVES: Final = 256 * 1024

app = typer.Typer()


@app.command(name="import-legacy", epilog=examples("import-legacy rabbitmq.config > agent.yml"))
def import_legacy(
    file: Annotated[Path, typer.Argument(metavar="rabbitmq.config", help="Erlang configuration of the 2.x plugin.")],
    format_: FormatOption = "text",
) -> int:
    """Print a 2.x federation configuration as this agent's YAML."""
    from agent.definitions.document.findings import one_line
    from agent.definitions.sources.legacy import import_legacy as converted

    written = converted(_read(file, MAX_LEGACY, Place(one_line(str(file)), 1, 1)), file=str(file))
    if format_ == "json":
        from agent.definitions.document import yaml

        tree = yaml.compose(written.encode(), str(file))
        output.say_json({"file": str(file), "yaml": written, "configuration": tree.plain()})
    else:
        output.say(output.Ready(written.rstrip("\n")))
    return OK


@app.command(epilog=examples("objectives objectives.yml --format prometheus > rules.yml"))
def objectives(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file that `report --objectives` reads.")],
    format_: Annotated[
        Literal["prometheus"], typer.Option("--format", help="Recording and alert rules for Prometheus.")
    ],
) -> int:
    """Print rules that watch objectives as they happen."""
    from agent.amqp.data.publish_tracker import TRANSFER_BOUNDS
    from agent.pipeline.objectives import parse_objectives, prometheus_rules

    del format_  # there is one
    try:
        text = _read(file, MAX_OBJECTIVES, Place(str(file))).decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError([Problem(Place(str(file)), "not UTF-8")]) from error
    rules = prometheus_rules(parse_objectives(text, source=str(file)), TRANSFER_BOUNDS, source=str(file))
    output.say(output.Ready(rules.rstrip("\n")))
    return OK


@app.command(
    name="report",
    add_help_option=False,  # the options are those of the Spark job, which describes them itself
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def report_command(context: typer.Context) -> int:
    """Turn status exports into tables of availability, traffic and incidents, with Spark."""
    from agent.cli.report import make_report

    make_report(context.args)
    return OK


def _read(file: Path, most: int, place: Place) -> bytes:
    from agent.read_file import UnreadableError, read_file

    try:
        return read_file(str(file), most)
    except UnreadableError as error:
        raise ConfigurationError([Problem(place, str(error))]) from error
