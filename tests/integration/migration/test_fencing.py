"""What `migrate fence` takes and `migrate unfence` gives back, however either ends."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import aio_pika
import pytest
from aio_pika.exceptions import ChannelClosed, ChannelInvalidStateError

from agent.core.migration.fences import ClientFence, Permissions
from agent.core.migration.verdict import PRODUCT
from tests.integration.migration.clients import OLD, Clients
from tests.integration.migration.scene import MigrationScene
from tests.lab import user_program
from tests.lab.waiting import DEADLINE
from tests.tiers import thorough

HAD = ("^(orders|a/ö %#?)", "^orders|^$|amq.default", "^orders$")


def test_all_of_it_comes_back(clients: Clients) -> None:
    scene = clients.scene
    scene.source.admin.permissions(scene.vhost, clients.user, configure=HAD[0], write=HAD[1], read=HAD[2])
    for _ in range(2):
        found = scene.run("fence", "--user", clients.user)
        assert found["done"] == [{"vhost": scene.vhost, "user": clients.user, "reason": "is fenced"}]
        assert clients.permissions() == ("^$", "^$", HAD[2])
    assert len(clients.parameters()) == 1
    assert scene.run("unfence", "--user", clients.user)["done"]
    assert clients.permissions() == HAD
    assert clients.parameters() == {}
    assert not any(scene.run("unfence").values())


async def test_a_fenced_client_may_consume_and_not_publish(clients: Clients) -> None:
    await user_program.publish_async(clients.uri, "", "orders", ["before"])
    await asyncio.to_thread(clients.scene.run, "fence", "--user", clients.user)
    with pytest.raises(ChannelClosed, match="ACCESS_REFUSED"):
        await user_program.publish_async(clients.uri, "", "orders", ["after"])
    assert [each.body for each in await user_program.messages_async(clients.uri, "orders", 1)] == [b"before"]


async def test_others_who_may_publish_keep_it_from_being_made(
    clients: Clients, clients_of: Callable[[MigrationScene], Clients]
) -> None:
    scene, other = clients.scene, clients_of(clients.scene)
    async with other.connected():
        await clients.listed()
        ran = await asyncio.to_thread(scene.ran, "fence", "--user", clients.user)
        assert ran.status == 4
        assert f"1 connection of user {other.user!r}" in ran.err
        assert (clients.permissions(), clients.parameters()) == ((".*", ".*", ".*"), {})
        await asyncio.to_thread(scene.run, "fence", "--user", clients.user, "--user", other.user)
    assert len(scene.run("unfence")["done"]) == 2


def test_who_is_never_fenced(clients: Clients) -> None:
    for user, status, text in (("guest", 2, "the move itself needs"), ("nobody", 4, "has no permissions")):
        ran = clients.scene.ran("fence", "--user", clients.user, "--user", user)
        assert (ran.status, text in ran.err) == (status, True), ran
    assert (clients.permissions(), clients.parameters()) == ((".*", ".*", ".*"), {})


def test_what_is_taken_and_not_remembered(clients: Clients, clients_of: Callable[[MigrationScene], Clients]) -> None:
    """Another fence was killed when its memory was just deleted, or somebody did it by hand. The others are fenced."""
    scene, other = clients.scene, clients_of(clients.scene)
    scene.source.admin.permissions(scene.vhost, clients.user, configure="^$", write="^$")
    found = scene.run("fence", "--user", clients.user, "--user", other.user, status=4)
    assert [each["user"] for each in found["done"]] == [other.user]
    assert "nothing says what it could before" in found["left"][0]["reason"]
    assert clients.parameters() == {}
    scene.source.admin.permissions(scene.vhost, clients.user, configure="", write="")
    assert len(scene.run("fence", "--user", clients.user, "--user", other.user)["done"]) == 2
    assert len(scene.run("unfence")["done"]) == 2
    assert clients.permissions() == ("", "", ".*")


def test_what_is_remembered_follows_what_was_given_meanwhile(clients: Clients) -> None:
    scene = clients.scene
    scene.run("fence", "--user", clients.user)
    ((name, first),) = clients.parameters().items()
    scene.source.admin.global_parameter(name, {**first, "since": first["since"] - OLD})
    scene.run("fence", "--user", clients.user)
    assert clients.parameters()[name]["since"] >= first["since"]
    scene.source.admin.permissions(scene.vhost, clients.user, configure="^new", write="^new")
    scene.run("fence", "--user", clients.user)
    scene.run("unfence")
    assert clients.permissions() == ("^new", "^new", ".*")


def test_what_cant_be_given_back_is_left(clients: Clients) -> None:
    scene = clients.scene
    scene.run("fence", "--user", clients.user)
    assert scene.run("unfence", "--user", "nobody", status=4)["problems"] == ["user 'nobody' isn't fenced"]
    ((name, value),) = clients.parameters().items()
    scene.source.admin.global_parameter(name, {**value, "since": "x"})
    (problem,) = scene.run("unfence", status=4)["problems"]
    assert repr(name) in problem
    assert (list(clients.parameters()), clients.permissions()) == ([name], ("^$", "^$", ".*"))


async def test_an_agents_own_user_isnt_fenced(clients: Clients) -> None:
    async with await aio_pika.connect(clients.uri, client_properties={"product": PRODUCT}):
        await clients.listed()
        ran = await asyncio.to_thread(clients.scene.ran, "fence", "--user", clients.user)
    assert (ran.status, "an agent is connected as user" in ran.err) == (4, True), ran
    assert (clients.permissions(), clients.parameters()) == ((".*", ".*", ".*"), {})


def test_what_somebody_changed_since_stays(clients: Clients) -> None:
    scene = clients.scene
    scene.run("fence", "--user", clients.user)
    scene.source.admin.permissions(scene.vhost, clients.user, write="^new$")
    (left,) = scene.run("unfence", status=4)["left"]
    assert "changed since" in left["reason"]
    assert clients.permissions() == (".*", "^new$", ".*")
    scene.run("unfence", "--force")
    assert (clients.permissions(), clients.parameters()) == ((".*", ".*", ".*"), {})
    scene.run("fence", "--user", clients.user)
    scene.source.admin.delete("users", clients.user)
    assert "gone" in scene.run("unfence", status=4)["left"][0]["reason"]
    scene.run("unfence", "--force")
    assert clients.parameters() == {}


@pytest.mark.parametrize("is_taken", [False, True])
def test_one_that_was_killed_in_the_middle(is_taken: bool, clients: Clients) -> None:
    """After what is remembered was written, and after it was taken."""
    scene, admin = clients.scene, clients.scene.source.admin
    half = ClientFence(scene.vhost, clients.user, Permissions(*HAD))
    admin.global_parameter(half.name, half.value)
    now = ("^$", "^$", HAD[2]) if is_taken else HAD
    admin.permissions(scene.vhost, clients.user, configure=now[0], write=now[1], read=now[2])
    assert scene.run("fence", "--user", clients.user)["done"][0]["reason"] == "is fenced"
    assert clients.parameters()[half.name]["since"] is not None
    scene.run("unfence")
    assert clients.permissions() == HAD


@pytest.mark.parametrize("seed", [1, thorough(2), thorough(3)])
def test_both_killed_at_any_time(
    seed: int, clients: Clients, clients_of: Callable[[MigrationScene], Clients], tmp_path: Path
) -> None:
    scene, chance = clients.scene, random.Random(seed)
    every = [clients_of(scene) for _ in range(15)]
    for number, each in enumerate(every):
        scene.source.admin.permissions(scene.vhost, each.user, configure=f"^c{number}", write=f"^w{number}")
    users = [word for each in every for word in ("--user", each.user)]
    for step, options in (("fence", users), ("fence", users), ("unfence", []), ("fence", users), ("unfence", [])):
        process = scene.start(step, *options, output=tmp_path / "out")
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0.2, 0.6))
        process.send_signal(signal.SIGKILL)
        process.wait(DEADLINE)
    scene.run("fence", *users)
    assert {each.permissions() for each in every} == {("^$", "^$", ".*")}
    scene.run("unfence")
    assert [each.permissions() for each in every] == [(f"^c{number}", f"^w{number}", ".*") for number in range(15)]
    assert not any(each.parameters() for each in every)


@pytest.mark.thorough
async def test_an_open_transaction(clients: Clients) -> None:
    """Brokers take what is in it after the fence, too."""
    async with clients.connected() as connection:
        channel = await connection.channel(publisher_confirms=False)
        transaction = channel.transaction()
        await transaction.select()
        await channel.default_exchange.publish(aio_pika.Message(b"late"), "orders")
        await clients.listed()
        found = await asyncio.to_thread(clients.scene.run, "fence", "--user", clients.user)
        assert found["older_connections"] == 1
        verdict, reason = await clients.verdict("orders")
        assert (verdict, "connected before the fence" in reason) == ("not provable", True), reason
        await transaction.commit()
    assert await user_program.depth_async(clients.uri, "orders") == 1


@pytest.mark.thorough
async def test_a_busy_channel_keeps_its_permission(clients: Clients) -> None:
    """Brokers ask again only where a channel has been idle: without closing it, a fence doesn't hold it up."""
    async with clients.connected() as connection:
        channel = await connection.channel()
        await clients.listed()
        await channel.default_exchange.publish(aio_pika.Message(b"m"), "orders")
        closing = ("--user", clients.user, "--close-connections")
        fencing = asyncio.create_task(asyncio.to_thread(clients.scene.run, "fence", *closing))
        published = 0
        with suppress(ChannelClosed, ConnectionError, ChannelInvalidStateError):
            while True:
                await channel.default_exchange.publish(aio_pika.Message(b"m"), "orders")
                published += clients.permissions()[1] == "^$"
                await asyncio.sleep(0.2)
        assert published > 2
        found = await fencing
        assert (found["closed_connections"], found["older_connections"]) == (1, 0)
    async with clients.connected():
        await clients.listed()
        found = await asyncio.to_thread(clients.scene.run, "fence", *closing)
        assert (
            found["closed_connections"] == 1
        )  # the second fence counts anew: the permission may have been there meanwhile
