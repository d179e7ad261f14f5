"""`make demo`: two brokers, the agent between them, and a little sample traffic."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aio_pika.exceptions import ChannelNotFoundEntity

from tests.lab import user_program
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.waiting import eventually

COMMAND: Final = str(Path(sys.executable).with_name("federation-agent"))
EXCHANGE: Final = "demo.orders"
QUEUE: Final = "demo.invoices"
KEY: Final = "orders.paid"
CONFIGURATION: Final = """\
agent: {{http: {{listen: "127.0.0.1:{port}"}}}}
downstream:
  uri: {downstream}
  management: {management}
upstreams:
  origin: {{uri: "{upstream}", max-hops: 1}}
policies:
  demo: {{pattern: ^demo\\., apply-to: exchanges, definition: {{federation-upstream-set: all}}}}
"""


def main() -> int:
    signal.signal(signal.SIGTERM, _interrupt)
    seconds = float(os.environ.get("DEMO_SECONDS", "0"))
    federated = 0
    with Lab() as lab:
        print("starting two brokers …", flush=True)
        downstream, upstream = (lab.node(name, cluster_name=name) for name in ("downstream", "upstream"))
        for node in (downstream, upstream):
            node.launch()
        for node in (downstream, upstream):
            node.wait_until_ready()
        _furnish(downstream)
        path = lab.directory / "agent.yaml"
        port = lab.ports.take()
        path.write_text(_configuration(downstream, upstream, port))
        print(f"\n{path}:\n\n{path.read_text()}")
        _show("plan", path)
        with _agent(path, lab.mark):
            _tell(downstream, upstream, path, port)
            federated = _traffic(downstream, upstream, seconds)
    print(f"{federated} messages were federated; everything is stopped and removed")
    return 0 if federated else 1


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _furnish(node: Node) -> None:
    node.admin.exchange("/", EXCHANGE)
    node.admin.queue("/", QUEUE)
    node.admin.bind("/", EXCHANGE, QUEUE, KEY)
    node.admin.bind("/", EXCHANGE, QUEUE, "orders.refunded.#")


def _configuration(downstream: Node, upstream: Node, port: int) -> str:
    return CONFIGURATION.format(
        port=port,
        downstream=f"amqp://guest:guest@127.0.0.1:{downstream.amqp_port}",
        management=f"http://guest:guest@127.0.0.1:{downstream.management_port}",
        upstream=f"amqp://guest:guest@127.0.0.1:{upstream.amqp_port}",
    )


def _show(command: str, path: Path) -> None:
    print(f"$ federation-agent {command} -c {path}", flush=True)
    subprocess.run([COMMAND, command, "-c", path], check=True)


@contextmanager
def _agent(path: Path, mark: dict[str, str]) -> Iterator[None]:
    print(f"\n$ federation-agent run -c {path}", flush=True)
    process = subprocess.Popen([COMMAND, "run", "-c", path], env={**os.environ, **mark}, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


def _tell(downstream: Node, upstream: Node, path: Path, port: int) -> None:
    print(f"live page:     http://127.0.0.1:{port}/ (also /api/links and /metrics)")
    print(f"downstream:    {downstream.management_url} (guest/guest), queue {QUEUE} fills")
    print(f"upstream:      {upstream.management_url} (guest/guest), one message per second to {EXCHANGE}")
    print(f"configuration: {path}; change it and watch the agent follow", flush=True)


def _traffic(downstream: Node, upstream: Node, seconds: float) -> int:
    """Publishes upstream until the time is over or Ctrl-C is pressed; returns how many messages arrived
    downstream."""
    begun = time.monotonic()
    try:
        eventually(
            lambda: user_program.publish(upstream.uri(), EXCHANGE, KEY, ["first"]),
            30,
            what="the upstream exchange has a binding",
            ignoring=ChannelNotFoundEntity,  # the agent makes the exchange
        )
        if not seconds:
            print("Ctrl-C stops all of it", flush=True)
        while not seconds or time.monotonic() - begun < seconds:
            user_program.publish(upstream.uri(), EXCHANGE, KEY, [f"order at {time.strftime('%X')}"])
            time.sleep(1)
    except KeyboardInterrupt:
        print()
    eventually(lambda: user_program.depth(downstream.uri(), QUEUE), what="messages arrive downstream")
    return user_program.depth(downstream.uri(), QUEUE)


if __name__ == "__main__":
    sys.exit(main())
