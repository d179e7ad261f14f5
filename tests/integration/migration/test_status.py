"""What `migrate status` says of queues, and when it says nothing for certain."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

from agent.core.fields import MAX_VALUES
from agent.core.migration.verdict import PRODUCT
from tests.conftest import Borrowed
from tests.integration.migration.clients import PASSWORD, Clients, verdicts
from tests.integration.migration.scene import HURRIED, MigrationScene
from tests.lab import user_program
from tests.lab.amqp10_client import PYTHON
from tests.lab.cluster import Cluster
from tests.lab.node import DEFAULT_PLUGINS, Node
from tests.lab.ports import Ports
from tests.lab.waiting import DEADLINE, eventually

SENDER: Final = """
import sys
from proton.utils import BlockingConnection
connection = BlockingConnection(sys.argv[1], allowed_mechs="PLAIN", virtual_host=sys.argv[2], timeout=60)
connection.create_sender(sys.argv[3])
print("attached", flush=True)
sys.stdin.read()
connection.close()
"""


async def test_what_waits_and_who_holds_it(clients: Clients) -> None:
    await user_program.publish_async(clients.uri, "", "orders", ["a", "b", "c"])
    async with clients.connected() as connection:
        channel = await connection.channel()
        await channel.set_qos(1)
        queue = await channel.get_queue("orders")
        got = asyncio.Event()

        async def hold(_: AbstractIncomingMessage) -> None:
            got.set()

        tag = await queue.consume(hold)
        await asyncio.wait_for(got.wait(), DEADLINE)
        assert await clients.verdict("orders") == (
            "not yet",
            f"2 wait, 1 unacknowledged by consumer {tag!r} of host 127.0.0.1 (user {clients.user})",
        )


@pytest.mark.thorough
async def test_somebody_connected_may_publish(clients: Clients) -> None:
    async with clients.connected():
        verdict, reason = await clients.verdict("orders", "--unfenced")
        assert (verdict, f"1 connection of user {clients.user!r} (AMQP 0-9-1 from 127.0.0.1)" in reason) == (
            "not provable",
            True,
        ), reason


@pytest.mark.thorough
async def test_an_agent_of_the_move_is_known_by_its_user_and_its_product(
    clients: Clients, clients_of: Callable[[MigrationScene], Clients]
) -> None:
    scene, mover = clients.scene, clients_of(clients.scene)
    scene.document["source"]["uri"] = ours = mover.uri
    scene.write()
    users = [(ours, "other", "not provable"), (clients.uri, PRODUCT, "not provable"), (ours, PRODUCT, "not provable")]
    for uri, product, verdict in [*users, (ours, PRODUCT, "empty")]:
        if verdict == "empty":
            scene.source.admin.permissions(scene.vhost, mover.user, write="^$")
        connection = await aio_pika.connect(uri, client_properties={"product": product})
        await clients.listed()
        assert (await clients.verdict("orders"))[0] == verdict
        await connection.close()
        await clients.listed(0)


@pytest.mark.thorough
async def test_it_fills_again_between_the_looks(clients: Clients) -> None:
    looking = asyncio.create_task(asyncio.to_thread(clients.scene.run, "status", "--apart", "10", status=4))
    await asyncio.sleep(3)
    await user_program.publish_async(clients.uri, "", "orders", ["late"])
    assert verdicts(await looking)["orders"][0] == "not yet"


async def test_a_user_who_is_shown_less_is_refused(clients: Clients) -> None:
    scene = clients.scene
    scene.source.admin.user(clients.user, PASSWORD, "monitoring")
    scene.document["source"]["management"] = scene.source.management_uri(clients.user, PASSWORD)
    scene.write()
    ran = await asyncio.to_thread(scene.ran, "status")
    assert ran.status == 4
    assert "give it the tag administrator" in ran.err
    assert ran.out == ""


@pytest.mark.thorough
async def test_other_queues_that_keep_messages_or_send_them(clients: Clients) -> None:
    """Dead letters of a queue that stays behind may come into one that has moved."""
    scene = clients.scene
    scene.write(queues={"^orders$": "shovel"})
    admin = scene.source.admin
    admin.queue(scene.vhost, "left")
    admin.queue(scene.vhost, "dying", arguments={"x-dead-letter-exchange": ""})
    admin.queue(scene.vhost, "federation-agent: kept")
    for queue in ("left", "dying", "federation-agent: kept"):
        await user_program.publish_async(clients.uri, "", queue, ["m"])
    found = await clients.status("--unfenced")
    verdict, reason = verdicts(found)["orders"]
    assert (verdict, reason) == ("not provable", "dead letters may come from 'dying'")
    text = "\n".join(found["reasons"])
    assert f"queue 'left' in vhost {scene.vhost!r}, which isn't selected: 1 waits" in text
    assert "'federation-agent: kept'" in text
    assert not found["switch_off"]


@pytest.mark.thorough
async def test_a_fence_that_cant_be_read(clients: Clients) -> None:
    scene = clients.scene
    await asyncio.to_thread(scene.run, "fence", "--user", clients.user)
    ((name, value),) = clients.parameters().items()
    scene.source.admin.global_parameter(name, {**value, "since": "x"})
    verdict, reason = await clients.verdict("orders", "--unfenced")
    assert (verdict, f"the global parameter {name!r} isn't what a fence writes" in reason) == ("not provable", True)


@pytest.mark.thorough
async def test_streams_and_what_the_broker_publishes(clients: Clients) -> None:
    scene = clients.scene
    scene.source.admin.queue(scene.vhost, "stream", arguments={"x-queue-type": "stream"})
    found = verdicts(await clients.status())
    assert (found["stream"][0], found["orders"][0]) == ("not provable", "empty")
    assert repr(clients.user) in found["orders"][1], "who may come back"
    scene.source.admin.bind(scene.vhost, "amq.rabbitmq.trace", "orders", "#")
    assert (await clients.verdict("orders"))[1].startswith("the broker itself publishes by ")
    scene.source.admin.queue(scene.vhost, "other")
    scene.source.admin.bind(scene.vhost, "amq.rabbitmq.trace", "other", "#", arguments={"x": list(range(MAX_VALUES))})
    assert "as they can't be read: binding from exchange 'amq.rabbitmq.trace'" in (await clients.verdict("orders"))[1]


@pytest.mark.thorough
async def test_shovels_of_the_broker(
    between: Callable[[Node, Node], MigrationScene],
    clients_of: Callable[[MigrationScene], Clients],
    native_broker: Node,
    second_broker: Node,
) -> None:
    scene = between(native_broker, second_broker)
    clients, admin = clients_of(scene), native_broker.admin
    admin.queue(scene.vhost, "orders")
    eventually(lambda: "enabled_plugins" in admin.get("nodes")[0], what="the broker shows its plugins")
    value = {"src-uri": "amqp://", "src-queue": "nowhere", "dest-uri": "amqp://", "dest-queue": "orders"}
    admin.parameter("shovel", scene.vhost, "into", value)
    verdict, reason = await clients.verdict("orders", "--unfenced")
    admin.delete("parameters", "shovel", scene.vhost, "into")
    assert verdict == "not provable"
    assert f"{scene.vhost}/into" in reason


@pytest.mark.thorough
async def test_the_whole_when_all_is_done(
    between: Callable[[Node, Node], MigrationScene],
    clients_of: Callable[[MigrationScene], Clients],
    borrowed: Borrowed,
    second_broker: Node,
) -> None:
    scene = between(borrowed(), second_broker)
    clients, admin = clients_of(scene), scene.source.admin
    admin.queue(scene.vhost, "orders")
    admin.queue(scene.vhost, "quorum", arguments={"x-queue-type": "quorum"})
    assert not (await clients.status())["switch_off"]
    assert (await clients.status("--unfenced", status=0))["switch_off"]
    admin.permissions(scene.vhost, "guest", configure="^$", write="^$")  # the move's
    await asyncio.to_thread(scene.run, "fence", "--user", clients.user)
    verdict, reason = await clients.verdict("quorum")
    assert (verdict, "counts in " in reason) == ("empty", True), reason
    clients.age_the_fence()
    async with clients.connected():  # as one who only consumes may
        found = await clients.status(status=0)
        assert {verdict for verdict, _ in verdicts(found).values()} == {"moved"}
        assert (found["switch_off"], found["reasons"], found["unfenced"]) == (True, [], [])
    admin.permissions(scene.vhost, clients.user)
    assert await clients.verdict("orders") == (
        "empty",
        f"it is empty, and somebody may come back: users who may publish aren't fenced: {clients.user!r}",
    )
    admin.queue("/", "elsewhere")
    found = await clients.status("--unfenced")
    admin.delete("queues", "/", "elsewhere")
    assert found["reasons"] == ["vhost '/' isn't in the file, and has 1 queue: add it, or delete it"]


@pytest.fixture
def on_new(between: Callable[[Node, Node], MigrationScene], second_broker: Node) -> Callable[[Node], MigrationScene]:
    def on(source: Node) -> MigrationScene:
        source.admin.queue((scene := between(source, second_broker)).vhost, "orders")
        return scene

    return on


@pytest.mark.versions
async def test_dead_letters_on_their_way(
    on_new: Callable[[Node], MigrationScene], broker_on: Callable[..., Node]
) -> None:
    """At least once: they are neither ready nor unacknowledged, and the queue isn't empty."""
    scene = on_new(broker_on("sid"))
    admin, vhost = scene.source.admin, scene.vhost
    arguments = {
        "x-queue-type": "quorum",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "full",
        "x-message-ttl": 1,
    }
    admin.queue(vhost, "dying", arguments=arguments)
    admin.queue(vhost, "full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    await user_program.publish_async(scene.source.uri(vhost), "", "dying", ["m"])
    dying = ("not yet", "1 on their way to a dead-letter exchange, or waiting to be tried again")

    def look() -> dict[str, tuple[str, str]]:
        seen = verdicts(scene.status())
        return seen if seen["dying"] == dying else {}

    found = await asyncio.to_thread(eventually, look, what="it is seen dying")
    verdict, reason = found["orders"]
    assert (verdict, "dead letters may come from 'dying'" in reason) == ("not provable", True), reason


@pytest.mark.versions
def test_clients_of_other_protocols(on_new: Callable[[Node], MigrationScene], borrowed: Borrowed) -> None:
    """From 4.0 on they have no channels."""
    ports = Ports()
    port = ports.take()
    plugins, conf = (*DEFAULT_PLUGINS, "rabbitmq_mqtt"), (f"mqtt.listeners.tcp.default = {port}",)
    scene = on_new(borrowed(release="sid", plugins=plugins, conf=conf))
    clients: dict[str, Callable[[], AbstractContextManager[None]]] = {
        "MQTT 3-1-1": lambda: mqtt_client(port, f"{scene.vhost}:guest", "guest"),
        "AMQP 1-0": lambda: amqp10_sender(scene),
    }

    def sees(kind: str) -> bool:
        ran = scene.ran("status", module=HURRIED)
        found = f"not provable queue 'orders' in vhost {scene.vhost!r}" in ran.out and kind in ran.out
        return found and ran.status == 4

    try:
        for kind, client in clients.items():
            with client():  # a broker that was slow to list connections gives the same list again for a while
                eventually(lambda kind=kind: sees(kind), what=f"a client of {kind} is seen")  # type: ignore[misc]
    finally:
        ports.release()


@contextmanager
def amqp10_sender(scene: MigrationScene) -> Iterator[None]:
    url = f"amqp://guest:guest@127.0.0.1:{scene.source.amqp_port}"
    words = [PYTHON, "-c", SENDER, url, f"vhost:{scene.vhost}", "/queues/orders"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sender:
        assert sender.stdout is not None
        assert sender.stdout.readline() == b"attached\n"
        yield
        sender.communicate(timeout=DEADLINE)


@contextmanager
def mqtt_client(port: int, user: str, password: str) -> Iterator[None]:
    texts = [b"MQTT", b"client", user.encode(), password.encode()]
    name, *rest = [len(each).to_bytes(2) + each for each in texts]
    packet = name + b"\x04\xc2\x00\x3c" + b"".join(rest)
    with socket.create_connection(("127.0.0.1", port), 20) as client:
        client.sendall(b"\x10" + bytes([len(packet)]) + packet)
        assert client.recv(4) == b"\x20\x02\x00\x00"
        yield


@pytest.mark.thorough
def test_a_quorum_queue_without_its_majority(on_new: Callable[[Node], MigrationScene], cluster: Cluster) -> None:
    scene = on_new(cluster.nodes[0])
    arguments = {"x-queue-type": "quorum", "x-quorum-initial-group-size": 2}
    scene.source.admin.queue(scene.vhost, "quorum", arguments=arguments)
    cluster.nodes[1].kill()
    try:
        found = scene.status("--unfenced")
    finally:
        cluster.nodes[1].start()
    assert verdicts(found)["quorum"][0] == "not provable"
    assert f"node {cluster.nodes[1].erlang_name!r} isn't running" in found["reasons"]
