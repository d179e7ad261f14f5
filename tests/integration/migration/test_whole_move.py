"""A cluster of three nodes of 3.10 moves to 4.3 as docs/moves.md says, with its clients, and each step is killed."""

from __future__ import annotations

import json
import logging
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.integration.migration.clients import PASSWORD, verdicts
from tests.integration.migration.scene import MigrationScene
from tests.integration.migration.shop import DEEP, EXCHANGES, NOWHERE, QUEUES, Shop, ShopAccount, furnish
from tests.lab import user_program
from tests.lab.cluster import Cluster
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.preloaded import Started
from tests.lab.waiting import eventually

pytestmark = [pytest.mark.versions, pytest.mark.thorough, pytest.mark.timeout(1800)]
log = logging.getLogger(__name__)

MOVER: Final = "mover"
USERS: Final = tuple(f"shop{number}" for number in range(5))
FENCED: Final = tuple(word for user in USERS for word in ("--user", user))
HELD: Final = "orders.20"
FOLLOWED: Final = "rpc.0"
AT_SOURCE: Final = (*(f"orders.{number}" for number in range(10, 18)), "mirrored.1", "quorum.1")
SELECTED: Final = {"queues": {r"^rpc\.": "queue-link", r"^(?!rpc\.)": {"how": "shovel", "convert": "quorum"}}}
BACK: Final = {"queues": {r"^(mirrored|quorum)": {"how": "shovel", "convert": "quorum"}}}
THREE: Final = ("mirrored", "quorum", "plain")
APART: Final = 10
A_PART: Final = 1_000
LONG: Final = 180  # seconds: quorum queues of a busy machine answer late
POLL: Final = 0.5  # seconds: to list 90 queues costs the brokers much
MOST_IN_FLIGHT: Final = 16_000  # of a link


@pytest.fixture(scope="module")
def old(lab: Lab) -> Iterator[Node]:
    """Its first node; it is a cluster of its own, as `status` judges all of it."""
    with started(Cluster.of(lab, "old")) as cluster:
        yield cluster.nodes[0]


@pytest.fixture(scope="module")
def new(lab: Lab) -> Iterator[Cluster]:
    with started(Cluster.of(lab, "new", release="sid")) as cluster:
        yield cluster


@contextmanager
def started(cluster: Cluster) -> Iterator[Cluster]:
    cluster.start()
    yield cluster
    for node in cluster.nodes:
        node.kill()


@dataclass(slots=True)
class WholeMove:
    scene: MigrationScene
    in_flight: Counter[str] = field(default_factory=Counter)
    """By queue, all that was unacknowledged at a kill: as much may come twice."""

    def figures(self, node: Node) -> dict[str, tuple[int, int]]:
        time.sleep(POLL)
        found = node.admin.get("queues", self.scene.vhost, query="columns=name,messages,messages_unacknowledged")
        return {each["name"]: (each.get("messages", 0), each.get("messages_unacknowledged", 0)) for each in found}

    def total(self, node: Node) -> int:
        return sum(messages for messages, _ in self.figures(node).values())

    def start(self, step: str) -> Started:
        where = "--listen", f"127.0.0.1:{self.scene.lab.ports.take()}"
        return self.scene.start(step, *where, output=self.scene.directory / "out")

    def killed(self, process: Started, origin: Node) -> None:
        """By -9, once its source's figures show what it has in flight: those of quorum queues come every 5 seconds."""
        process.send_signal(signal.SIGSTOP)
        seen: Counter[str] = Counter()
        for _ in range(3):  # a broker may be late with its figures
            time.sleep(3)
            seen |= Counter({name: unacknowledged for name, (_, unacknowledged) in self.figures(origin).items()})
        self.in_flight += seen
        process.send_signal(signal.SIGKILL)
        process.wait(LONG)

    def in_flight_at_restarts(self, account: ShopAccount) -> int:
        """At most, of links that lost a connection by themselves: on a busy machine a broker may stop reading."""
        published = Counter(body.partition(":")[0] for body in account.confirmed)
        return sum(
            min(MOST_IN_FLIGHT, published[str(said["name"]).removeprefix("migrate ")])
            for line in (self.scene.directory / "out").read_text().splitlines()
            if '"previous": "running"' in line and (said := json.loads(line))["status"] == "backoff"
        )

    def kill_a_step(self, step: str, *arguments: str, when: Callable[[], bool] = lambda: True) -> None:
        """It may have ended by then."""
        process = self.scene.start(step, *arguments, output=self.scene.directory / "killed")
        eventually(lambda: when() or process.poll() is not None, what=f"{step} is where it is to be killed")
        process.send_signal(signal.SIGKILL)
        process.wait(LONG)

    def status(self, *, status: int = 4) -> dict[str, Any]:
        begun = time.monotonic()
        found = self.scene.run("status", "--apart", str(APART), status=status)
        log.info("status took %.1f s besides the time between its looks", time.monotonic() - begun - APART)
        return found


@contextmanager
def stopped(process: Started) -> Iterator[None]:
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) == 0
    finally:
        process.send_signal(signal.SIGKILL)


def test_blue_green(between: Callable[[Node, Node], MigrationScene], old: Node, broker_on: Callable[..., Node]) -> None:
    new = broker_on("sid")
    scene = between(old, new)
    move = WholeMove(scene)
    furnish(old.admin, scene.vhost)
    users(scene)
    scene.write(**SELECTED)
    shop = Shop(lambda user: old.uri(scene.vhost, user, PASSWORD), new.uri(scene.vhost), USERS)
    try:
        begun = time.monotonic()
        count = shop.preload()
        log.info("%d messages published in %.1f s", count, time.monotonic() - begun)
        shop.start_publishing()
        consuming = shop.consume_at_source(AT_SOURCE)
        holding = shop.hold(HELD, 3)
        look_and_copy(move)
        run_and_back(move)
        shop.leave(consuming)
        with stopped(move.start("run")):
            shop.consume_at_target([name for name in QUEUES if name != FOLLOWED])
            look_while_they_publish(move)
            shop.leave(holding)
            fence(move)
            assert shop.refused == {*USERS}
            shop.publish_at_target()
            look_at_the_fenced(move, shop)
            shop.stop_publishing()
        eventually(lambda: not shop.account.missing, LONG, what="all that was published came")
        assert move.total(old) == 0
        twice, killed = shop.account.twice, move.in_flight.total()
        restarted = move.in_flight_at_restarts(shop.account)
        said = "%d messages, %d came twice; in flight at kills: %d, at most, at what else ended connections: %d"
        log.info(said, len(shop.account.confirmed), twice, killed, restarted)
        assert twice <= killed + restarted
        for name in ("orders.0", "orders.1", "orders.2"):
            first = [body for body in dict.fromkeys(shop.account.came[name]) if waited(body)]
            assert first == sorted(first), "what waited comes in order"
    finally:
        shop.close()
        log.info("%s", (scene.directory / "out").read_text()[-3_000:])


def test_to_a_cluster_of_three_nodes(between: Callable[[Node, Node], MigrationScene], old: Node, new: Cluster) -> None:
    """A queue that was mirrored has a replica on each of them, and nothing is lost while one is killed."""
    move = WholeMove(scene := between(old, new.nodes[0]))
    for name in THREE:
        arguments = {"x-queue-type": "quorum"} if name == "quorum" else {}
        old.admin.queue(scene.vhost, name, arguments=arguments)
    old.admin.policy(scene.vhost, "mirrors", "^mirrored", definition={"ha-mode": "all"}, apply_to="queues")
    scene.write(queues={".*": {"how": "shovel", "convert": "quorum"}})
    scene.run("copy")
    members = {name: len(new.nodes[0].admin.get("queues", scene.vhost, name).get("members", ())) for name in THREE}
    assert members == {"mirrored": 3, "quorum": 3, "plain": 0}
    bodies = user_program.numbered(A_PART)
    for name in THREE:
        assert user_program.publish(old.uri(scene.vhost), "", name, bodies[: A_PART // 2]) == A_PART // 2
    with stopped(move.start("run")):
        eventually(lambda: move.total(old) == 0, LONG, what="what waited has moved")
        new.nodes[2].kill()
        for name in THREE:
            user_program.publish(old.uri(scene.vhost), "", name, bodies[A_PART // 2 :])
        eventually(lambda: move.total(old) == 0, LONG, what="what came has moved")
    for name in ("mirrored", "quorum"):
        assert user_program.take(new.nodes[0].uri(scene.vhost), name, A_PART) == bodies


def waited(body: str) -> bool:
    """In its queue from the beginning, and not in that of the alternate exchange."""
    return int(body[-6:]) < DEEP[body.partition(":")[0]] and (int(body[-6:]) + 1) % NOWHERE != 0


def users(scene: MigrationScene) -> None:
    """Nobody else may publish into the vhost of the source."""
    admin = scene.source.admin
    for user in USERS:
        admin.user(user, PASSWORD)
        admin.permissions(scene.vhost, user)
    admin.user(MOVER, PASSWORD, "administrator")
    admin.permissions(scene.vhost, MOVER, configure="^$", write="^$")
    admin.permissions("/", MOVER)  # leases, of a move back
    admin.permissions(scene.vhost, "guest", configure="^$", write="^$")
    scene.document["source"] = {
        "uri": scene.source.uri(user=MOVER, password=PASSWORD),
        "management": scene.source.management_uri(MOVER, PASSWORD),
    }


def look_and_copy(move: WholeMove) -> None:
    scene = move.scene
    move.kill_a_step("plan")
    planned = scene.run("plan", status=5)
    assert {(each["name"], each["verdict"]) for each in planned["objections"]} >= {("mirrors", "refused")}
    for part in (20, 35, 50):  # among classic queues: of quorum queues see docs/limits.md
        move.kill_a_step("copy", when=lambda part=part: number_of(scene, "queues") >= part)  # type: ignore[misc]
    before, begun = number_of(scene, "queues"), time.monotonic()
    done = scene.run("copy")
    log.info("copy: %s in %.1f s", done["copied"], time.monotonic() - begun)
    assert done["copied"].get("queue", 0) == len(QUEUES) - before
    assert scene.names(scene.target, "queues") == {*QUEUES}
    assert scene.names(scene.target, "exchanges") - {""} == {*EXCHANGES}
    assert scene.bindings(scene.target) == scene.bindings(scene.source)
    kinds = {each["name"]: each["type"] for each in scene.target.admin.get("queues", scene.vhost)}
    assert {name for name, kind in kinds.items() if kind == "quorum"} == {
        name for name in QUEUES if name.startswith(("mirrored", "quorum"))
    }
    assert scene.run("copy")["copied"] == {}


def number_of(scene: MigrationScene, kind: str) -> int:
    return len(scene.names(scene.target, kind)) if scene.is_there(scene.target) else 0


def run_and_back(move: WholeMove) -> None:
    old, new = move.scene.source, move.scene.target
    for number in range(2):
        process, before, begun = move.start("run"), move.total(new), time.monotonic()
        eventually(lambda: some_moved(move, before), LONG, what="a part has moved")  # noqa: B023
        log.info("run: %d in %.1f s", move.total(new) - before, time.monotonic() - begun)
        move.killed(process, old)
        if not number:
            found = verdicts(move.status())
            assert {verdict for verdict, _ in found.values()} <= {"not yet", "not provable"}
            assert found[HELD][0] == "not yet" and "3 unacknowledged by" in found[HELD][1]
    may_write(move, r"^amq\.default$")
    move.scene.write(**BACK)
    process = started_after(move, "rollback")
    before_it = waiting(move, new)
    log.info("back: %d wait at the target", before_it)
    eventually(lambda: waiting(move, new) <= 0.7 * before_it, LONG, what="some came back")
    move.killed(process, new)
    with stopped(started_after(move, "rollback")):
        eventually(lambda: consumed(move, new) and waiting(move, new) == 0, LONG, what="all is back")
    move.scene.write(**SELECTED)
    eventually(lambda: not consumed(move, old, new), LONG, what="brokers show no consumers any more")
    may_write(move, "^$")


def some_moved(move: WholeMove, before: int) -> bool:
    """Also of what the move back takes."""
    return move.total(move.scene.target) > before + A_PART and waiting(move, move.scene.target) > A_PART


def may_write(move: WholeMove, what: str) -> None:
    """The mover at the source: only a move back needs that."""
    move.scene.source.admin.permissions(move.scene.vhost, MOVER, configure="^$", write=what)


def waiting(move: WholeMove, node: Node) -> int:
    return sum(each for name, (each, _) in move.figures(node).items() if name.startswith(("mirrored", "quorum")))


def consumed(move: WholeMove, *nodes: Node) -> list[str]:
    time.sleep(POLL)
    found = [each for node in nodes for each in node.admin.get("consumers", move.scene.vhost)]
    return [each["consumer_tag"] for each in found if each["consumer_tag"].startswith("federation-agent")]


def started_after(move: WholeMove, step: str) -> Started:
    """Once brokers show no consumers of the one before."""
    eventually(lambda: not consumed(move, move.scene.source, move.scene.target), LONG, what="no agent consumes")
    return move.start(step)


def look_while_they_publish(move: WholeMove) -> None:
    found = verdicts(move.status())
    assert {verdict for verdict, _ in found.values()} <= {"not yet", "not provable"}
    assert "3 unacknowledged by" in found[HELD][1]


def fence(move: WholeMove) -> None:
    """Killed when the first is remembered, when some are taken, and while it waits for connections."""
    admin = move.scene.source.admin

    def taken() -> int:
        return sum(each["write"] == "^$" for each in admin.get("permissions") if each["user"] in USERS)

    def remembered() -> int:
        return sum(each["name"].startswith("federation-agent fence") for each in admin.get("global-parameters"))

    for when in (lambda: remembered() > 0, lambda: taken() > 2, lambda: taken() == len(USERS)):
        move.kill_a_step("fence", *FENCED, "--close-connections", when=when)
    begun = time.monotonic()
    found = move.scene.run("fence", *FENCED, "--close-connections")
    log.info("fence: %d connections closed, in %.1f s", found["closed_connections"], time.monotonic() - begun)
    assert len(found["done"]) == len(USERS)


def look_at_the_fenced(move: WholeMove, shop: Shop) -> None:
    """A queue that isn't empty, and messages that a fenced client holds, are seen until the end."""
    begun = time.monotonic()
    found = move.status()
    is_late = time.monotonic() - begun > 30
    assert is_late or not {verdict for verdict, _ in verdicts(found).values()} & {"moved"}, "fences count later"
    holding = shop.hold(FOLLOWED, 3)
    begun = time.monotonic()
    eventually(lambda: time.monotonic() > begun + 45, what="the fence counts")
    found = eventually(lambda: all_but_one_moved(move.status()), LONG, what="queues have moved")
    assert "wait, 3 unacknowledged by" in verdicts(found)[FOLLOWED][1]
    assert shop.ready_at_source([name for name in QUEUES if name != FOLLOWED]) == 0
    assert shop.ready_at_source([FOLLOWED]) > 0
    shop.consume_at_target([FOLLOWED])
    move.kill_a_step("status")
    shop.leave(holding)
    eventually(lambda: move.total(move.scene.source) == 0, LONG, what="the source is empty")
    found = eventually(lambda: switched(move), LONG, what="the old cluster can be switched off")
    assert kinds_of(found) == {"moved": len(QUEUES)}


def all_but_one_moved(found: dict[str, Any]) -> dict[str, Any]:
    log.info("%s", kinds_of(found))
    return found if kinds_of(found) == {"moved": len(QUEUES) - 1, "not yet": 1} else {}


def kinds_of(found: dict[str, Any]) -> Counter[str]:
    return Counter(each["verdict"] for each in found["queues"])


def switched(move: WholeMove) -> dict[str, Any]:
    ran = move.scene.ran("status", "--format", "json", "--apart", str(APART))
    found: dict[str, Any] = json.loads(ran.out)
    log.info("status %d: %s", ran.status, found["reasons"])
    return found if ran.status == 0 else {}
