"""A move that goes on, killed and started again, and back; by the command's own agent, or by one with its file."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final

import pytest

from tests.integration.conftest import TlsBroker
from tests.integration.migration.scene import FILE, MigrationScene
from tests.lab.node import Node
from tests.lab.preloaded import Started
from tests.lab.user_program import depth, numbered, publish, take
from tests.lab.waiting import DEADLINE, eventually
from tests.unit.status.export.reading import events, finished

ODD: Final = "a/ö %#?${env:HOME} '\""
SHOVELLED: Final = ("orders", ODD, "quorum")
FOLLOWED: Final = "rpc.a"
PASSWORD: Final = "secret-password"
WRITTEN: Final = "moving.yaml"


def make(migrated: MigrationScene) -> None:
    """Queues of either way and of every type, and their copies."""
    admin, vhost = migrated.source.admin, migrated.vhost
    for each in ("orders", ODD, FOLLOWED):
        admin.queue(vhost, each)
    admin.queue(vhost, "quorum", arguments={"x-queue-type": "quorum"})
    admin.queue(vhost, "events", arguments={"x-queue-type": "stream"})
    migrated.write(queues={r"^rpc\.": "queue-link", r"^(?!rpc\.)": "shovel"})
    migrated.run("copy")


def listen(migrated: MigrationScene) -> tuple[str, str]:
    return "--listen", f"127.0.0.1:{migrated.lab.ports.take()}"


@contextmanager
def running(migrated: MigrationScene, process: Started) -> Iterator[None]:
    """It gets SIGTERM at the end, and stops."""
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0, output(migrated)
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)


def start(migrated: MigrationScene, step: str = "run", *options: str) -> Started:
    return migrated.start(step, *listen(migrated), *options, output=migrated.directory / "out")


def output(migrated: MigrationScene) -> str:
    return (migrated.directory / "out").read_text()


def refused(migrated: MigrationScene, *arguments: str, status: int = 4) -> str:
    command = ("migrate", *arguments[:1], FILE, *arguments[1:])
    ran = migrated.lab.agents.run(command, cwd=migrated.directory, environment={}, deadline=DEADLINE)
    assert (ran.status, ran.out) == (status, ""), ran
    assert PASSWORD not in ran.err
    return ran.err


def fill(migrated: MigrationScene, queues: Sequence[str], bodies: Sequence[str]) -> None:
    for each in queues:
        publish(migrated.source.uri(migrated.vhost), "", each, bodies)


def depths(migrated: MigrationScene, node: Node, queues: Sequence[str]) -> set[int]:
    """By the HTTP API, which is late, only where pamqp refuses the name."""
    return {
        node.admin.get("queues", migrated.vhost, each).get("messages", 0)
        if each == ODD
        else depth(node.uri(migrated.vhost), each)
        for each in queues
    }


def has_moved(migrated: MigrationScene, count: int, *, back: bool = False) -> bool:
    left, there = (migrated.target, migrated.source) if back else (migrated.source, migrated.target)
    return (depths(migrated, left, SHOVELLED), depths(migrated, there, SHOVELLED)) == ({0}, {count})


def shown(migrated: MigrationScene) -> bool:
    """True while the source's broker lists consumers; it does so for some seconds after they are gone."""
    return bool(migrated.source.admin.get("consumers", migrated.vhost))


def test_what_waits_and_what_comes_moves(migrated: MigrationScene) -> None:
    make(migrated)
    bodies = numbered(200)
    fill(migrated, SHOVELLED, bodies[:100])
    fill(migrated, [FOLLOWED], bodies[:10])
    with running(migrated, start(migrated, "run", "--status-export", str(migrated.directory / "export"))):
        eventually(lambda: has_moved(migrated, 100), what="what waits has moved")
        fill(migrated, SHOVELLED, bodies[100:])
        eventually(lambda: has_moved(migrated, 200), what="what comes moves")
        assert depths(migrated, migrated.source, [FOLLOWED]) == {10}, "a queue link follows consumers"
        assert take(migrated.target.uri(migrated.vhost), FOLLOWED, 10) == bodies[:10]
    for each in ("orders", "quorum"):
        assert take(migrated.target.uri(migrated.vhost), each, 200) == bodies
    said = output(migrated)
    assert "moves 1 queue by queue-link and 3 queues by shovel from cluster" in said
    assert f"not moved: 1 queue: 'events' in vhost '{migrated.vhost}': a stream keeps its messages" in said
    exported = events(*finished(migrated.directory / "export"))
    last = {line["upstream_name"]: line for line in exported if line["type"] == "sample"}
    source = migrated.source.admin.get("overview")["cluster_name"]
    moved = {queue: (line["moves_from"], line["forwarded"]) for queue, line in last.items()}
    assert moved == {FOLLOWED: (source, 10), **dict.fromkeys(SHOVELLED, (source, 200))}


def test_an_agent_with_what_is_written_does_the_same(migrated: MigrationScene) -> None:
    make(migrated)
    (migrated.directory / "secret").write_text("guest")
    for end, node in (("source", migrated.source), ("target", migrated.target)):
        written = {"uri": node.uri(), "management": node.management_uri()}
        migrated.document[end] = {key: each.replace(":guest@", ":${file:secret}@") for key, each in written.items()}
    migrated.write(queues={r"^rpc\.": "queue-link", r"^(?!rpc\.)": "shovel"})
    command = ("migrate", "run", FILE, "--write", WRITTEN)
    ran = migrated.lab.agents.run(command, cwd=migrated.directory, environment={}, deadline=DEADLINE)
    assert ran.status == 0, ran
    path = migrated.directory / WRITTEN
    text = path.read_text()
    assert "guest:guest" not in text and "secret}" in text
    path.write_text(text.replace("agent: {", f"agent: {{http: {{listen: '{listen(migrated)[1]}'}}, "))
    fill(migrated, SHOVELLED, numbered(10))
    process = migrated.lab.agents.start(["run", "-c", str(path)], output=migrated.directory / "out")
    with running(migrated, process):
        eventually(lambda: has_moved(migrated, 10), what="what waits has moved")
    (migrated.directory / "mine.yaml").write_text("mine")
    assert "wasn't written by 'migrate'" in refused(migrated, "rollback", "--write", "mine.yaml", status=2)


@pytest.mark.thorough
def test_over_tls_at_both_ends(
    between: Callable[[Node, Node], MigrationScene], tls_broker: TlsBroker, strict_tls_broker: TlsBroker
) -> None:
    """AMQP and HTTP, of the target with a client's certificate: by `ssl-options`, and for an agent by parameters of the
    addresses."""
    migrated = between(tls_broker.node, strict_tls_broker.node)
    trust, shown = tls_broker.trust, f"{strict_tls_broker.trust}&{strict_tls_broker.show('mover')}"
    ends = (("source", tls_broker, trust), ("target", strict_tls_broker, shown))
    for end, each, query in ends:
        options = dict(part.split("=") for part in query.split("&"))
        migrated.document[end] = {"uri": each.amqps(), "management": each.https(), "ssl-options": options}
    make(migrated)
    fill(migrated, SHOVELLED, numbered(50))
    fill(migrated, [FOLLOWED], numbered(10))
    assert migrated.run("copy")["copied"] == {}
    with running(migrated, start(migrated)):
        eventually(lambda: has_moved(migrated, 50), what="what waits has moved")
        assert take(migrated.target.uri(migrated.vhost), FOLLOWED, 10) == numbered(10)

    def verdicts() -> set[str]:
        return {each["verdict"] for each in migrated.status()["queues"]}

    eventually(lambda: verdicts() == {"empty", "not provable"}, 2 * DEADLINE, what="all but the stream is empty")
    assert migrated.ran("run", "--write", WRITTEN).status == 2, "an agent's upstream has no `ssl-options`"
    for end, each, query in ends:
        migrated.document[end] = {"uri": each.amqps(query), "management": each.https(query)}
    migrated.write(queues={r"^rpc\.": "queue-link", r"^(?!rpc\.)": "shovel"})
    assert migrated.ran("run", "--write", WRITTEN).status == 0
    assert migrated.run("copy")["copied"] == {}


def test_a_move_without_copies_or_within_one_cluster_is_refused(migrated: MigrationScene) -> None:
    migrated.source.admin.queue(migrated.vhost, "orders")
    assert "run 'federation-agent migrate copy' first" in refused(migrated, "run")
    migrated.document["target"] = migrated.document["source"]
    migrated.write()
    assert "within one, nothing has to move" in refused(migrated, "run")
    assert "others can reach this address" in refused(migrated, "run", "--listen", "0.0.0.0:1", status=2)


@pytest.mark.versions
@pytest.mark.parametrize("releases", [("", "sid"), ("sid", "")])
def test_between_releases_with_the_least_permissions(
    between: Callable[[Node, Node], MigrationScene],
    broker: Node,
    broker_on: Callable[..., Node],
    name: Callable[[str], str],
    releases: tuple[str, str],
) -> None:
    source, target = (broker_on(each) if each else broker for each in releases)
    migrated = between(source, target)
    make(migrated)
    user = name("mover")
    for end, node in (("source", source), ("target", target)):
        node.admin.user(user, PASSWORD, "policymaker")
        migrated.document[end] = {
            "uri": node.uri(user=user, password=PASSWORD),
            "management": node.management_uri(user, PASSWORD),
        }
    migrated.write(queues={r"^rpc\.": "queue-link", r"^(?!rpc\.)": "shovel"})
    queues = r"^(orders|rpc\.a|quorum|a/.*)$"
    try:
        for node, write, read, leases in (
            (source, "^$", queues, "^$"),
            (target, r"^amq\.default$", "^$", "^federation-agent: "),
        ):
            looked_for = queues if node is not broker else "^$"
            node.admin.permissions(migrated.vhost, user, configure=looked_for, write=write, read=read)
            node.admin.permissions("/", user, configure=leases, write=leases, read=leases)
        fill(migrated, SHOVELLED, numbered(50))
        fill(migrated, [FOLLOWED], numbered(10))
        with running(migrated, start(migrated)):
            eventually(lambda: has_moved(migrated, 50), what="what waits has moved")
            assert take(target.uri(migrated.vhost), FOLLOWED, 10) == numbered(10)
            eventually(lambda: shown(migrated), what="the broker shows its consumers")
            assert "so messages would go round" in refused(migrated, "rollback"), "its own user sees them"
        for node, write, read in ((target, "^$", queues), (source, r"^amq\.default$", "^$")):
            looked_for = queues if node is not broker else "^$"
            node.admin.permissions(migrated.vhost, user, configure=looked_for, write=write, read=read)
        eventually(lambda: not shown(migrated), what="the broker shows them no more")
        with running(migrated, start(migrated, "rollback")):
            eventually(lambda: has_moved(migrated, 50, back=True), what="all is back")
        assert "unexpected" not in output(migrated)
    finally:
        for node in (source, target):
            node.admin.delete("users", user)


@pytest.mark.thorough
def test_two_with_one_file_share_the_queues_and_one_is_killed(migrated: MigrationScene) -> None:
    """On two hosts, begun at once. Each queue keeps its order."""
    names, bodies = [f"q{number}" for number in range(8)], numbered(500)
    for each in names:
        migrated.source.admin.queue(migrated.vhost, each)
    migrated.write()
    migrated.run("copy")
    outputs = [migrated.directory / name for name in ("out", "other")]
    killed, other = (migrated.start("run", *listen(migrated), output=each) for each in outputs)
    with running(migrated, other), ThreadPoolExecutor(1) as thread:
        eventually(lambda: all("links are shared" in each.read_text() for each in outputs), what="both know it")
        filling = thread.submit(fill, migrated, names, bodies)
        eventually(lambda: depth(migrated.target.uri(migrated.vhost), names[2]) > 0, what="messages move")
        killed.send_signal(signal.SIGKILL)
        filling.result()
        eventually(lambda: depths(migrated, migrated.source, names) == {0}, what="the other moves all")
    for each in names:
        found = take(migrated.target.uri(migrated.vhost), each, len(bodies))
        assert list(dict.fromkeys(found)) == bodies, "what was in flight at the kill may come twice"
