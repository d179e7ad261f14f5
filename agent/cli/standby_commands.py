"""The commands `standby …` as they are called: their options, and what they are for."""

from __future__ import annotations

from typing import Final

import typer

from agent.cli.agent_commands import AgentConfigOption, TokenOption, UrlOption
from agent.cli.options import FormatOption, examples

app = typer.Typer(help="A cluster that is kept in step with another one, to take over from it.", no_args_is_help=True)
NO_STANDBY: Final = 5


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
