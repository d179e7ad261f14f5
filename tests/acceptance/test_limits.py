"""docs/limits.md says what the code does: each limit in its row, as the code has it."""

from __future__ import annotations

from typing import Final

import pytest

from agent import look_up, network
from agent.amqp import connect, connection_pool
from agent.amqp.wire import channel, login
from agent.check import trial
from agent.cli import check, file_commands, signals
from agent.core import fields
from agent.core.addresses import uri
from agent.core.links import read_limits, waits
from agent.core.replicas import messages, sharing, slots
from agent.core.rules import headers, patterns
from agent.definitions.document import findings, interpolate, yaml
from agent.definitions.models import settings, values
from agent.definitions.sources import decode, exports, parameters
from agent.links import brokers, flow, quarantine
from agent.management import elements, transport
from agent.runtime.replicas import replica
from agent.status import fleet, history
from agent.status.export import exporter, files
from tests.acceptance.command import ROOT

PAGE: Final = (ROOT / "docs/limits.md").read_text()


def size(octets: int) -> str:
    return f"{octets // 1024**2} MiB" if octets % 1024**2 == 0 else f"{octets // 1024} KiB"


def seconds(number: float) -> str:
    return f"{number:g} s"


def row(what: str) -> str:
    """The row of that name, without the name."""
    [found] = [line for line in PAGE.splitlines() if line.startswith(f"| {what} |")]
    return found.removeprefix(f"| {what} |")


@pytest.mark.parametrize(
    ("what", "has"),
    [
        (
            "the configuration",
            [size(yaml.MAX_BYTES), f"{yaml.MAX_DEPTH} levels", f"{yaml.MAX_NODES:,} keys and values"],
        ),
        ("a definitions export as JSON", [size(exports.MAX_BYTES), f"{exports.MAX_PARAMETERS:,} parameters"]),
        ("a file for `import-legacy`", [size(file_commands.MAX_LEGACY)]),
        ("one value of `${env:…}` or `${file:…}`", [size(interpolate.MAX_VALUE_BYTES), size(interpolate.MAX_LENGTH)]),
        ("a file with certificates or a key", [size(network.MAX_FILE)]),
        ("a file on a disk that hangs", [seconds(network.READ_WITHIN)]),
        ("addresses of one upstream or shovel", [f"{values.MAX_ADDRESSES:,}"]),
        ("a policy's `pattern`", [f"{values.MAX_PATTERN:,} bytes", size(decode.MOST_REGEX_BYTES)]),
        (
            "matching a pattern",
            [f"{1000 * patterns.PER_NAME:g} ms for a name", f"{1000 * patterns.PER_PATTERN:g} ms for all"],
        ),
        ("parameters or policies of one vhost of the broker", [f"{parameters.MAX_OF_A_VHOST:,}"]),
        (
            "arguments of an exchange, queue or binding",
            [size(elements.MAX_OBJECT), f"{fields.MAX_VALUES:,} values", f"{fields.MAX_DEPTH} levels"],
        ),
        (
            "a list of the HTTP API",
            [size(transport.MAX_LIST), f"{elements.MAX_OBJECTS:,} objects", f"{elements.MAX_VALUES:,} values"],
        ),
        ("problems that are reported at once", [f"{findings.MOST_PROBLEMS}"]),
        ("`agent.peers`", [f"{settings.MOST_PEERS};", size(fleet.MOST_BYTES), seconds(fleet.PATIENCE)]),
        (
            "unacknowledged messages of a link",
            [f"`auto` {read_limits.MOST_PREFETCH:,}", size(read_limits.BYTES_ON_THE_WAY)],
        ),
        (
            "headers that a [rule](rules.md#headers) sets, or removes",
            [f" {headers.MOST_RULES} of each", f"{headers.MOST_BYTES:,} bytes"],
        ),
        ("a message", [size(channel.MAX_BODY)]),
        ("a message in quarantine", [size(quarantine.LARGEST_TOGETHER)]),
        (
            "messages kept for publishing again",
            [f"{size(read_limits.BYTES_ON_THE_WAY)} of a link", f"{size(brokers.KEPT_TOGETHER)} of all"],
        ),
        ("links that share a connection", [f"{connection_pool.LINKS_PER_CONNECTION},"]),
        (
            "other agents of a group",
            [
                f"{sharing.MOST_MEMBERS};",
                f"{messages.MOST_LINKS:,} links of each",
                f"{sharing.MOST_LINKS:,} of all",
            ],
        ),
        ("slots of a group", [f"{slots.SLOTS}"]),
        ("names being looked up", [f"{look_up.MOST}"]),
        ("reaching an address, and logging in", [seconds(connect.LONGEST_STEP)]),
        ("an answer of a broker to a request", [seconds(login.PATIENCE)]),
        ("an answer of the HTTP API", [seconds(transport.DEFAULT_TIMEOUT)]),
        (
            "silence of a connection",
            [f"{seconds(uri.DEFAULT_HEARTBEAT)} by default", f"{seconds(replica.HEARTBEAT)} in a group"],
        ),
        ("settling what is in flight when a link stops", [seconds(flow.SETTLE_PATIENCE)]),
        (
            "a retry after a refusal",
            [f"{waits.slow_delay(0.0, 0.0):g} to {seconds(waits.slow_delay(0.0, 1.0))}"],
        ),
        ("stopping the agent", [seconds(signals.STOPPED_WITHIN), f"status {signals.NOT_STOPPED}"]),
        ("events of a link that the agent remembers", [f"{history.TRANSITIONS}"]),
        (
            "what waits for the export's disk",
            [size(exporter.MOST_WAITING), f"samples {size(exporter.MOST_SAMPLES_WAITING)}"],
        ),
        ("a file of the export", [size(files.LARGEST)]),
        ("findings that `check` shows", [f"{check.MOST_SHOWN},", f"{check.MOST_IN_JSON:,} as JSON"]),
        ("links that `check --deliver` tries", [f"{trial.MOST_TRIED}"]),
    ],
)
def test_a_limit_is_that_of_the_code(what: str, has: list[str]) -> None:
    assert [each for each in has if each not in row(what)] == []
