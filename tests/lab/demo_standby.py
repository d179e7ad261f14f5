"""`make demo STANDBY=1`: a broker is kept in step with another one, and takes over, by the steps of docs/standby.md."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.lab import user_program
from tests.lab.demo import COMMAND
from tests.lab.demo_move import running, show, tell
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.waiting import eventually

VHOST: Final = "shop"
NAME: Final = "orders"
PUBLISHED, CONSUMED = 500, 200
WITHIN: Final = 120.0
CONFIGURED: Final = ("-c", "standby.yaml")
CONFIGURATION: Final = """\
agent: {{http: {{listen: "127.0.0.1:{port}"}}}}
downstream: {{uri: "{uri}", management: "{management}"}}
upstreams:
  origin: {{uri: "{source_uri}", management: "{source_management}", probe: 2s}}
standby: {{of: origin, vhosts: {{shop: }}, keep: 1h, trim: {{after: 30m}}}}
"""


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with Lab() as lab:
        print("starting two brokers …", flush=True)
        source, standby = lab.node("source", cluster_name="source"), lab.node("standby", cluster_name="standby")
        for node in (source, standby):
            node.launch()
        for node in (source, standby):
            node.wait_until_ready()
        for node in (source, standby):
            node.admin.vhost(VHOST)
        source.admin.exchange(VHOST, NAME)
        source.admin.queue(VHOST, NAME)
        source.admin.bind(VHOST, NAME, NAME, NAME)
        path = lab.directory / "standby.yaml"
        path.write_text(_configuration(source, standby, lab))
        print(f"\n{path}:\n\n{path.read_text()}")
        has_taken_over = _take_over(source, standby, path.parent, lab)
    print("everything is stopped and removed")
    return 0 if has_taken_over else 1


def _configuration(source: Node, standby: Node, lab: Lab) -> str:
    return CONFIGURATION.format(
        port=lab.ports.take(),
        uri=standby.uri("").removesuffix("/"),
        management=standby.management_uri(),
        source_uri=source.uri("").removesuffix("/"),
        source_management=source.management_uri(),
    )


def _take_over(source: Node, standby: Node, directory: Path, lab: Lab) -> bool:
    """Whether what was consumed is gone in the end, and all else is there once."""
    bodies = user_program.numbered(PUBLISHED)
    tell("What would go wrong is found before; nothing is changed:")
    show("check", *CONFIGURED, directory=directory)
    tell("An agent keeps the standby in step:")
    with running("run", *CONFIGURED, directory=directory, lab=lab, unsaid=("--log-level", "error")):
        eventually(lambda: _status(directory).get("in_step"), WITHIN, what="in step")
        user_program.publish(source.uri(VHOST), NAME, NAME, bodies[:CONSUMED])
        user_program.take(source.uri(VHOST), NAME, CONSUMED)
        user_program.publish(source.uri(VHOST), NAME, NAME, bodies[CONSUMED:])
        depths = PUBLISHED - CONSUMED, PUBLISHED
        eventually(lambda: _depths(directory) == depths, WITHIN, what="all is copied")
        tell(
            f"{PUBLISHED} messages were published at the source, and {CONSUMED} of them consumed there. All are copied:"
        )
        show("standby", "status", *CONFIGURED, directory=directory)
        tell("If the source were gone now:")
        show("standby", "promote", *CONFIGURED, "--failover", "--dry-run", directory=directory)
        eventually(lambda: not _clients(source) and not _clients(standby), WITHIN, what="clients are gone")
        tell("It is there, and its clients have ended. So nothing is lost, and nothing repeated:")
        status = show("standby", "promote", *CONFIGURED, "--switchover", directory=directory)
    tell("The way back, for an agent beside the former source:")
    show("standby", "reverse", *CONFIGURED, "--write", "reversed.yaml", directory=directory)
    left = user_program.depth(source.uri(VHOST), NAME)
    came = user_program.take(standby.uri(VHOST), NAME, PUBLISHED - CONSUMED)
    is_exact = came == bodies[CONSUMED:]
    print(f"\nat the former source: {left} messages; at the new one: {len(came)}, each once: {is_exact}", flush=True)
    return (status, left, is_exact) == (0, 0, True)


def _status(directory: Path) -> dict[str, Any]:
    asked = [COMMAND, "standby", "status", *CONFIGURED, "--format", "json"]
    said = subprocess.run(asked, cwd=directory, capture_output=True, check=False).stdout
    return dict(json.loads(said)) if said else {}


def _depths(directory: Path) -> tuple[int | None, int | None] | None:
    """At the source and here, as the agent last saw them."""
    found = [each for each in _status(directory).get("queues", ()) if each["queue"] == NAME]
    return (found[0]["source"], found[0]["here"]) if found else None


def _clients(node: Node) -> list[Any]:
    """Those that a switchover would refuse: brokers show connections for some seconds after they have ended."""
    found = node.admin.get("connections")
    return [each for each in found if each.get("client_properties", {}).get("product") != "federation-agent"]


if __name__ == "__main__":
    sys.exit(main())
