"""The commands `standby …` as they are called: their options, and what they are for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.agent_commands import AgentConfigOption, TokenOption, UrlOption
from agent.cli.options import ConfigOption, FormatOption, examples
from agent.errors import UsageError

app = typer.Typer(help="A cluster that is kept in step with another one, to take over from it.", no_args_is_help=True)


@app.command(epilog=examples("standby status", "standby status -c agent.yml --format json"))
def status(
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
    *,
    format_: FormatOption = "text",
) -> int:
    """Show whether the standby is in step with its source, and what a promotion now would mean, as the agent knows it.

    Exit status: 0 if it is in step, 4 if not, 5 if the agent keeps no standby.
    """
    from agent.cli import standby
    from agent.cli.remote import reach

    return standby.show(reach(url, token_file, config), form=format_)


@app.command(
    epilog=examples(
        "standby promote -c agent.yml --failover --dry-run",
        "standby promote -c agent.yml --failover",
        "standby promote -c agent.yml --switchover",
    )
)
def promote(
    config: ConfigOption,
    *,
    failover: Annotated[
        bool, typer.Option("--failover", help="The source is gone: its copies are all there is, and may repeat.")
    ] = False,
    switchover: Annotated[
        bool,
        typer.Option(
            "--switchover", help="The source is there, and no client is connected: nothing is lost or repeated."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing: show what it would mean.")] = False,
    url: UrlOption = None,
    token_file: TokenOption = None,
    format_: FormatOption = "text",
) -> int:
    """Make an independent cluster of the standby: its links end, and bindings that waited are made. It needs the
    configuration and the brokers; the agent is asked if it answers.

    It can be repeated. Exit status: 0 if the standby is promoted, 4 if something is left or stands in the way.
    """
    from agent.cli import standby
    from agent.cli.remote import reach

    if failover is switchover:
        raise UsageError("give one of --failover and --switchover")
    return standby.promote(config, reach(url, token_file, config), failover=failover, is_dry=dry_run, form=format_)


@app.command(epilog=examples("standby reverse -c agent.yml --write reversed.yml"))
def reverse(
    config: ConfigOption,
    *,
    write: Annotated[Path, typer.Option("--write", metavar="OUT", help="The file to write, which must not exist yet.")],
) -> int:
    """Write the configuration that makes the former source the standby of this cluster. Changes nothing else."""
    from agent.cli import standby

    return standby.reverse(config, write)
