"""Commands that read an agent's configuration: their options and exit status."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from agent.cli.options import (
    BAD_CONFIGURATION,
    OK,
    TROUBLE_WITH_BROKERS,
    ConfigOption,
    FormatOption,
    examples,
    usual_config,
)
from agent.errors import UsageError

CHANGES = 4

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
    log_format: Annotated[
        Literal["auto", "console", "json"] | None, typer.Option(help="Overrides the configuration.")
    ] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None, typer.Option(help="Overrides the configuration.")
    ] = None,
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
