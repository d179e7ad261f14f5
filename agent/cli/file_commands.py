"""Commands that read files, an agent's configuration above all: their options and exit status."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from agent.cli import output
from agent.cli.options import (
    BAD_CONFIGURATION,
    OK,
    TROUBLE_WITH_BROKERS,
    ConfigOption,
    FormatOption,
    LogFormatOption,
    LogLevelOption,
    examples,
    usual_config,
)
from agent.errors import ConfigurationError, Place, Problem, UsageError

CHANGES: Final = 4
MAX_LEGACY: Final = 512 * 1024  # bytes; far more than any 2.x configuration, and parsing more takes seconds
MAX_OBJECTIVES: Final = 256 * 1024

app = typer.Typer()


@app.command(epilog=examples("validate -c agent.yml", "validate /etc/federation-agent/*.yml --format json"))
def validate(
    config: Annotated[
        list[Path] | None, typer.Option("-c", "--config", metavar="FILE", help="A configuration; may be repeated.")
    ] = None,
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="Further configurations.")] = None,
    no_secrets: Annotated[
        bool, typer.Option("--no-secrets", help="On another machine than the agent's: files of secrets may be missing.")
    ] = False,
    format_: FormatOption = "text",
) -> int:
    """Report all errors of configurations, offline."""
    from agent.cli.validate import validate_files

    usual = usual_config()
    paths = [*(config or []), *(files or [])] or [each for each in (usual,) if each]
    if not paths:
        raise UsageError("give a file: federation-agent validate -c FILE")
    is_valid = validate_files(paths, secrets=not no_secrets, as_json=format_ == "json")
    return OK if is_valid else BAD_CONFIGURATION


@app.command(epilog=examples("plan -c agent.yml", "plan -c agent.yml --exit-code || echo 'something would change'"))
def plan(
    config: ConfigOption,
    *,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 4 if something would change, or that can't be known.")
    ] = False,
    format_: FormatOption = "text",
) -> int:
    """Show what `run` would create, keep and delete, and why.

    Reads from the brokers at both ends and changes nothing.
    """
    from agent.cli.plan import show_plan

    has_changes = show_plan(config, as_json=format_ == "json")
    return CHANGES if exit_code and has_changes else OK


@app.command(
    epilog=examples(
        "check -c agent.yml", "check -c agent.yml --api 'dc1=${env:DC1_API}'", "check -c agent.yml --deliver"
    )
)
def check(
    config: ConfigOption,
    api: Annotated[
        list[str] | None,
        typer.Option(
            "--api",
            metavar="NAME=URL",
            help="HTTP API of an upstream, by NAME, VHOST/NAME or HOST:PORT; ${env:…} and ${file:…} are replaced.",
        ),
    ] = None,
    *,
    deliver: Annotated[
        bool, typer.Option("--deliver", help="Send a message through each link where no user's queue can get it.")
    ] = False,
    format_: FormatOption = "text",
) -> int:
    """Check a configuration on the real brokers, and change nothing there.

    Looks at addresses, TLS, logins, permissions, limits, releases, clocks, native links and loops.
    """
    from agent.cli.check import check_brokers

    as_json = format_ == "json"
    return OK if check_brokers(config, api or [], deliver=deliver, as_json=as_json) else TROUBLE_WITH_BROKERS


@app.command(
    epilog=examples("topology dc1.yml dc2.yml dc3.yml", "topology dc1.yml dc2.yml --format svg > federation.svg")
)
def topology(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Configurations of the agents, one a cluster.")],
    exchange: Annotated[
        list[str] | None, typer.Option("--exchange", metavar="NAME", help="Look at exchanges of this name.")
    ] = None,
    address: Annotated[
        list[str] | None,
        typer.Option("--address", metavar="CLUSTER=HOST[:PORT]", help="An address that other clusters know one by."),
    ] = None,
    format_: Annotated[
        Literal["text", "json", "dot", "svg"], typer.Option("--format", help="Text, data, or a drawing.")
    ] = "text",
) -> int:
    """Show where messages go in a federation of several clusters, offline.

    Reports what arrives more than once or never, and the max-hops that would be right.
    """
    from agent.cli.topology import show_topology

    return OK if show_topology(files, exchange or [], address or [], format_=format_) else TROUBLE_WITH_BROKERS


@app.command(name="run", epilog=examples("run -c agent.yml", "run -c agent.yml --log-format json"))
def run_command(
    config: ConfigOption,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    wait_for_configuration: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="For sidecars: over a configuration that isn't valid, don't exit with 2, but answer probes here and "
            "wait for a valid one.",
        ),
    ] = None,
) -> int:
    """Run until SIGTERM or SIGINT."""
    # The first process of a container gets only the signals that it handles, and loading takes a while.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(OK))
    from agent.cli.run import run_agent

    run_agent(config, log_format=log_format, log_level=log_level, waits_at=wait_for_configuration)
    return OK


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
