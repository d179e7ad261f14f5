"""The command `federation-agent`, and the exit status of each error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from agent.cli import agent_commands, file_commands, move_commands, output, quarantine, standby_commands
from agent.cli.options import (
    BAD_CONFIGURATION,
    BAD_USE,
    CANNOT_START,
    INTERRUPTED,
    OK,
    TROUBLE_WITH_BROKERS,
    UNKNOWN_LINK,
)
from agent.errors import AgentError, BrokerError, CannotStartError, ConfigurationError, UnknownLinkError, UsageError

_ERRORS: Final = (  # with the exit status, and what their text begins with
    (ConfigurationError, BAD_CONFIGURATION, ""),
    (BrokerError, TROUBLE_WITH_BROKERS, ""),
    (CannotStartError, CANNOT_START, ""),
    (UnknownLinkError, UNKNOWN_LINK, ""),
    (UsageError, BAD_USE, "federation-agent: "),
    (AgentError, TROUBLE_WITH_BROKERS, "federation-agent: "),
)
app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # they print the values of variables, some of which are secrets
    context_settings={"help_option_names": ["-h", "--help"]},
    help="RabbitMQ federation and shovels from outside the broker.",
)
for each in (file_commands, agent_commands, move_commands):
    app.add_typer(each.app)
app.add_typer(quarantine.app, name="quarantine")
app.add_typer(standby_commands.app, name="standby")


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print version, build and Python's version, and exit.")
    ] = False,
) -> None:
    if version:
        from agent.version import described

        output.say(f"federation-agent {described()}")
        raise typer.Exit


def run(arguments: Sequence[str]) -> int:
    """Runs one command; each error of the agent is one line on standard error."""
    try:
        status = app(list(arguments) or ["--help"], prog_name="federation-agent", standalone_mode=False)
    except AgentError as error:
        status, prefix = next((status, prefix) for kind, status, prefix in _ERRORS if isinstance(error, kind))
        lines = error.problems if isinstance(error, ConfigurationError) else (error,)
        output.complain(*(f"{prefix}{each}" for each in lines))
        return status
    except typer.TyperException as error:
        output.complain(f"federation-agent: {error.format_message()} (see --help)")
        return BAD_USE
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except OSError as error:
        # Brokers and files have their own errors above; what remains is our own output.
        output.forget()
        output.complain(f"federation-agent: the output can't be written: {error.strerror or error}")
        return CANNOT_START
    return status if isinstance(status, int) else OK


def main() -> None:
    sys.exit(run(sys.argv[1:]))
