"""A move that goes on, killed and started again, and back; by the command's own agent, or by one with its file."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from tests.integration.migration.scene import FILE, MigrationScene
from tests.lab.node import Node
from tests.lab.preloaded import Started
from tests.lab.user_program import numbered, publish, take
from tests.lab.waiting import eventually

ODD: Final = "a/ö %#?${env:HOME} '\""
SHOVELLED: Final = ("orders", ODD, "quorum")


@contextmanager
def moving(migrated: MigrationScene, step: str = "run", *more: str) -> Iterator[Started]:
    """The command while it runs; at the end it is told to stop, and does."""
    listen = f"127.0.0.1:{migrated.lab.ports.take()}"
    process = start(migrated, step, "--listen", listen, *more)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, output(migrated)
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)


def start(migrated: MigrationScene, *arguments: str) -> Started:
    return migrated.start(*arguments, output=migrated.directory / "out")


def output(migrated: MigrationScene) -> str:
    return (migrated.directory / "out").read_text()


def refused(migrated: MigrationScene, *arguments: str, status: int = 4) -> str:
    command = ("migrate", *arguments[:1], FILE, *arguments[1:])
    ran = migrated.lab.agents.run(command, cwd=migrated.directory, environment={}, deadline=60)
    assert (ran.status, ran.out) == (status, ""), ran
    return ran.err


def fill(migrated: MigrationScene, queues: Sequence[str], bodies: Sequence[str], *, node: Node | None = None) -> None:
    for each in queues:
        publish((node or migrated.source).uri(migrated.vhost), "", each, bodies)


def depths(migrated: MigrationScene, node: Node, queues: Sequence[str]) -> set[int]:
    """By the HTTP API: pamqp refuses names such as that of `ODD`."""
    there = {each["name"]: each.get("messages") for each in node.admin.get("queues", migrated.vhost)}
    return {there[each] for each in queues}


def has_moved(migrated: MigrationScene, count: int, *, queues: Sequence[str] = SHOVELLED, back: bool = False) -> bool:
    left, there = (migrated.target, migrated.source) if back else (migrated.source, migrated.target)
    return (depths(migrated, left, queues), depths(migrated, there, queues)) == ({0}, {count})


def make(migrated: MigrationScene) -> None:
    """Queues of either way and of every type, and their copies."""
    admin, vhost = migrated.source.admin, migrated.vhost
    for each in ("orders", ODD, "rpc.a"):
        admin.queue(vhost, each)
    admin.queue(vhost, "quorum", arguments={"x-queue-type": "quorum"})
    admin.queue(vhost, "events", arguments={"x-queue-type": "stream"})
    migrated.write(queues={r"^rpc\.": "queue-link", r"^(?!rpc\.)": "shovel"})
    migrated.run("copy")


def test_what_waits_and_what_comes_moves_also_through_a_kill_and_back(migrated: MigrationScene) -> None:
    make(migrated)
    bodies = numbered(300)
    fill(migrated, SHOVELLED, bodies[:100])
    fill(migrated, ["rpc.a"], bodies[:10])
    with moving(migrated):
        eventually(lambda: has_moved(migrated, 100), what="what waits has moved")
        fill(migrated, SHOVELLED, bodies[100:200])
        eventually(lambda: has_moved(migrated, 200), what="what comes moves")
        assert depths(migrated, migrated.source, ["rpc.a"]) == {10}, "a queue link follows consumers"
        assert take(migrated.target.uri(migrated.vhost), "rpc.a", 10) == bodies[:10]
        other = refused(migrated, "rollback", "--listen", "127.0.0.1:1")
        assert "so messages would go round: stop the other 'migrate run'" in other
    said = output(migrated)
    assert "moves 1 queue by queue-link and 3 queues by shovel from cluster" in said
    assert f"not moved: 1 queue: 'events' in vhost '{migrated.vhost}': a stream keeps its messages" in said

    killed = start(migrated, "run", "--listen", f"127.0.0.1:{migrated.lab.ports.take()}")
    fill(migrated, SHOVELLED, bodies[200:250])
    eventually(lambda: has_moved(migrated, 250), what="it goes on")
    killed.send_signal(signal.SIGKILL)
    killed.wait(30)
    fill(migrated, SHOVELLED, bodies[250:])
    with moving(migrated):
        eventually(lambda: has_moved(migrated, 300), what="it goes on after kill -9")

    eventually(lambda: not shown(migrated), 30, what="the broker shows no consumer of it any more")
    with moving(migrated, "rollback"):
        eventually(lambda: has_moved(migrated, 300, back=True), what="all is back")
    for each in ("orders", "quorum"):
        assert take(migrated.source.uri(migrated.vhost), each, 300) == bodies


def shown(migrated: MigrationScene) -> list[Any]:
    return list(migrated.source.admin.get("consumers", migrated.vhost))
