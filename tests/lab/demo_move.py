"""`make demo MOVE=1`: what is in a broker's queues moves to another one, by the steps of docs/moves.md."""

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

from tests.lab import user_program
from tests.lab.demo import COMMAND
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.releases import prepared
from tests.lab.waiting import eventually

VHOST: Final = "shop"
CLIENT, MOVER, PASSWORD = "shop", "mover", "demo"
EXCHANGE: Final = "events"
QUEUES: Final = ("orders", "invoices", "mails")
FOLLOWED: Final = "mails"
FENCED: Final = 57.0
"""Seconds after which a fence counts, without those that `--close-connections` waits."""
WAITING: Final = 500
NEWEST: Final = "sid"
FILE: Final = """\
source: {{uri: "{source_uri}", management: "{source_management}"}}
target: {{uri: "{target_uri}", management: "{target_management}"}}
vhosts:
  shop:
    queues:
      ^(orders|invoices)$: {{how: shovel, convert: quorum}}
      ^mails$: queue-link
"""


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with Lab() as lab:
        print("starting two brokers …", flush=True)
        newest = NEWEST if NEWEST in prepared() else None
        old, new = lab.node("old", cluster_name="old"), lab.node("new", release=newest, cluster_name="new")
        for node in (old, new):
            node.launch()
        for node in (old, new):
            node.wait_until_ready()
        path = lab.directory / "migration.yaml"
        path.write_text(_furnished(old, new))
        print(f"\n{path}:\n\n{path.read_text()}")
        has_moved = _move(old, new, path, lab)
    print("everything is stopped and removed")
    return 0 if has_moved else 1


def _furnished(old: Node, new: Node) -> str:
    """Queues with messages at the old broker, a client that may do all there, and a mover that may only read. Returns
    the migration file."""
    old.admin.vhost(VHOST)
    for node in (old, new):
        node.admin.user(CLIENT, PASSWORD)
        node.admin.user(MOVER, PASSWORD, "administrator")
        node.admin.permissions("/", MOVER)
    old.admin.permissions(VHOST, CLIENT)
    old.admin.permissions(VHOST, MOVER, configure="^$", write="^$")
    old.admin.exchange(VHOST, EXCHANGE)
    old.admin.policy(VHOST, "mirrored", "^(orders|invoices)$", definition={"ha-mode": "all"}, apply_to="queues")
    for queue in QUEUES:
        old.admin.queue(VHOST, queue)
        old.admin.bind(VHOST, EXCHANGE, queue, queue)
        user_program.publish(old.uri(VHOST, CLIENT, PASSWORD), EXCHANGE, queue, user_program.numbered(WAITING))
    old.admin.delete("permissions", VHOST, "guest")
    ends = {f"{name}_{kind}": uri for name, node in (("source", old), ("target", new)) for kind, uri in _uris(node)}
    return FILE.format_map(ends)


def _uris(node: Node) -> Iterator[tuple[str, str]]:
    yield "uri", node.uri("", MOVER, PASSWORD).removesuffix("/")
    yield "management", node.management_uri(MOVER, PASSWORD)


def _move(old: Node, new: Node, path: Path, lab: Lab) -> bool:
    """Whether the old broker can be switched off at the end, and all has come."""
    at_old, at_new = (node.uri(VHOST, CLIENT, PASSWORD) for node in (old, new))
    tell(f"{len(QUEUES)} queues with {WAITING} messages each are in vhost {VHOST!r} of the old broker. Look before:")
    _show("plan", path)
    tell("Bring the definitions over:")
    _show("copy", path)
    new.admin.permissions(VHOST, CLIENT)
    tell("Users aren't copied: the client has its permissions at the new broker now, too. Move the messages:")
    unsaid = "--listen", f"127.0.0.1:{lab.ports.take()}", "--log-level", "warning"
    with running("migrate", "run", path.name, directory=path.parent, lab=lab, unsaid=unsaid):
        shovelled = [queue for queue in QUEUES if queue != FOLLOWED]
        eventually(lambda: all(user_program.depth(at_new, each) == WAITING for each in shovelled), what="they moved")
        tell(f"{' and '.join(shovelled)} are at the new broker. {FOLLOWED} follows its consumers:")
        taken = len(user_program.take(at_new, FOLLOWED, WAITING))
        print(f"a consumer at the new broker took {taken} messages from {FOLLOWED}")
        tell("May the old broker be switched off?")
        _show("status", path, "--apart", "10")
        tell("The client may still publish there. Take that from it:")
        _show("fence", path, "--user", CLIENT, "--close-connections")
        user_program.publish(at_new, EXCHANGE, "orders", ["published at the new broker"])
        tell("The client has published a message at the new broker meanwhile. The fence counts in a minute …")
        time.sleep(FENCED)
        status = _show("status", path, "--apart", "10")
    came = [user_program.depth(at_new, queue) for queue in shovelled]
    left = [user_program.depth(at_old, queue) for queue in QUEUES]
    print(f"\nat the old broker: {sum(left)} messages; at the new one: {taken} consumed, {sum(came)} wait", flush=True)
    return status == 0 and (sum(left), taken + sum(came)) == (0, len(QUEUES) * WAITING + 1)


def tell(text: str) -> None:
    print(f"\n# {text}", flush=True)


def _show(step: str, path: Path, *arguments: str) -> int:
    return show("migrate", step, path.name, *arguments, directory=path.parent)


def show(*words: str, directory: Path) -> int:
    print(f"$ federation-agent {' '.join(words)}", flush=True)
    status = subprocess.run([COMMAND, *words], cwd=directory, check=False).returncode
    print(f"(exit status {status})", flush=True)
    return status


@contextmanager
def running(*words: str, directory: Path, lab: Lab, unsaid: tuple[str, ...]) -> Iterator[None]:
    print(f"$ federation-agent {' '.join(words)} &", flush=True)
    command = [COMMAND, *words, *unsaid]
    process = subprocess.Popen(command, cwd=directory, env={**os.environ, **lab.mark}, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    sys.exit(main())
