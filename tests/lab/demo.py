"""`make demo`: two brokers, a configuration for the agent between them, and what it would do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.lab.lab import Lab
from tests.lab.node import Node

COMMAND: Final = str(Path(sys.executable).with_name("federation-agent"))
CONFIGURATION: Final = """\
downstream:
  uri: {downstream}
  management: {management}
upstreams:
  origin: {{uri: "{upstream}", max-hops: 1}}
policies:
  demo: {{pattern: ^demo\\., apply-to: exchanges, definition: {{federation-upstream-set: all}}}}
"""


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    seconds = float(os.environ.get("DEMO_SECONDS", "0"))
    with Lab() as lab:
        print("starting two brokers …", flush=True)
        downstream, upstream = (lab.node(name, cluster_name=name) for name in ("downstream", "upstream"))
        for node in (downstream, upstream):
            node.launch()
        for node in (downstream, upstream):
            node.wait_until_ready()
        _furnish(downstream)
        path = lab.directory / "agent.yaml"
        path.write_text(_configuration(downstream, upstream))
        print(f"\n{path}:\n\n{path.read_text()}")
        status = _show("validate", path) or _show("plan", path)
        print(f"\ndownstream: {downstream.management_url} (guest/guest)")
        print(f"upstream:   {upstream.management_url} (guest/guest)")
        print(f"try it:     {COMMAND} plan -c {path}", flush=True)
        _wait(seconds)
    print("everything is stopped and gone")
    return status


def _furnish(node: Node) -> None:
    node.admin.exchange("/", "demo.orders")
    node.admin.queue("/", "demo.invoices")
    node.admin.bind("/", "demo.orders", "demo.invoices", "orders.paid")
    node.admin.bind("/", "demo.orders", "demo.invoices", "orders.refunded.#")


def _configuration(downstream: Node, upstream: Node) -> str:
    return CONFIGURATION.format(
        downstream=f"amqp://guest:guest@127.0.0.1:{downstream.amqp_port}",
        management=f"http://guest:guest@127.0.0.1:{downstream.management_port}",
        upstream=f"amqp://guest:guest@127.0.0.1:{upstream.amqp_port}",
    )


def _show(command: str, path: Path) -> int:
    print(f"$ federation-agent {command} -c {path}", flush=True)
    return subprocess.run([COMMAND, command, "-c", path], check=False).returncode


def _wait(seconds: float) -> None:
    try:
        if seconds:
            time.sleep(seconds)
        else:
            print("Ctrl-C stops all of it", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    sys.exit(main())
