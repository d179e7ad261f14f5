"""Opening a connection, what both sides agree on, and how a broker ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.wire import frames, methods
from agent.amqp.wire.login import CAPABILITIES
from agent.core import fields
from agent.core.addresses.secret import Secret
from agent.errors import BrokerError
from tests.contract.asking import Asking, Release
from tests.lab.waiting import DEADLINE, eventually_async

DEFAULTS: Final = (131_072, 2_047)
"""`frame_max` and `channel_max`."""
SMALL_FRAMES: Final[dict[str, tuple[int, ...] | str]] = {
    "3.10": (4_096, 2_047),
    "4.1": "connection closed on frame_max=4096: brokers from 4.1 on need 8192 or more",
}


def add_user(release: Release, user: str) -> dict[str, str]:
    """Who may do everything in the vhost; how to ask as this one."""
    release.node.admin.user(user, "p")
    release.node.admin.permissions(release.vhost, user)
    return {"user": user, "password": "p"}


async def opened(asking: Asking) -> tuple[int, ...] | str:
    try:
        connection = await asking.connection()
    except BrokerError as error:
        return asking.read(error)
    await asking.close()
    return connection.wire.frame_max, connection.wire.channel_max


async def ended(asking: Asking, connection: Connection) -> str:
    """How the broker ends it."""
    async with asyncio.timeout(DEADLINE):
        return asking.read(await asyncio.shield(connection.wire.closed))


async def test_what_a_broker_shows_of_itself(ask: Asking, release: Release) -> None:
    connection = await ask.connection()
    server = connection.server
    assert (server.product, server.version, server.cluster_name) == (
        "RabbitMQ", release.version, release.node.cluster_name,
    )  # fmt: skip
    able = fields.get(connection.wire.server_properties, "capabilities")
    assert able is not None
    shown = {name for name, value in able.value if value == fields.boolean(True)}
    assert shown >= {*CAPABILITIES, "consumer_priorities", "per_consumer_qos"}


async def test_logging_in(asking: Callable[..., Asking]) -> None:
    ways = ("plain", "amqplain")
    assert [await opened(asking(query=f"?auth_mechanism={way}")) for way in ways] == [DEFAULTS] * 2
    assert await opened(asking(password="wrong")) == (
        "closed: 403 ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the "
        "broker logfile."
    )


async def test_vhosts_that_are_not_open_to_a_user(
    asking: Callable[..., Asking], release: Release, name: Callable[[str], str]
) -> None:
    admin, vhost, limit = release.node.admin, release.vhost, {"value": 0}
    assert await opened(asking(vhost="gone")) == "closed: 530 NOT_ALLOWED - vhost gone not found"
    admin.put("vhost-limits", vhost, "max-connections", body=limit)
    assert await opened(asking()) == (
        "closed: 530 NOT_ALLOWED - access to vhost 'V' refused for user 'U': connection limit (0) is reached"
    )
    admin.delete("vhost-limits", vhost, "max-connections")
    as_user = add_user(release, user := name("user"))
    admin.put("user-limits", user, "max-connections", body=limit)
    assert await opened(asking(**as_user)) == (
        "closed: 530 NOT_ALLOWED - connection refused for user 'U': user connection limit (0) is reached"
    )
    admin.delete("user-limits", user, "max-connections")
    admin.delete("permissions", vhost, user)
    assert await opened(asking(**as_user)) == "closed: 530 NOT_ALLOWED - access to vhost 'V' refused for user 'U'"
    admin.delete("users", user)


async def test_limits_that_both_sides_agree_on(asking: Callable[..., Asking], release: Release) -> None:
    """The smaller ones hold, but for frames that are too small for a broker: it hangs up without a word."""
    assert await opened(asking(query="?frame_max=8192&channel_max=1")) == (8_192, 1)
    assert await opened(asking(query="?frame_max=200000&channel_max=65535")) == DEFAULTS
    small = await opened(asking(query="?frame_max=4096"))
    assert (small if isinstance(small, tuple) else small.partition(": ")[2]) == release.says(SMALL_FRAMES)


async def test_what_exceeds_the_limits(asking: Callable[..., Asking]) -> None:
    small = asking(query="?channel_max=1&frame_max=8192")
    connection = await small.connection()
    await connection.channel()
    connection.wire.write(frames.frame(frames.METHOD, 2, methods.CHANNEL_OPEN.encode()))
    assert await ended(small, connection) == (
        "closed: 530 NOT_ALLOWED - number of channels opened (1) has reached the negotiated channel_max (1)"
    )
    connection = await small.connection()
    long = methods.QUEUE_DECLARE.encode(queue="q", arguments=(("a", fields.text("x" * 8_192)),))
    connection.wire.write(frames.frame(frames.METHOD, (await connection.channel()).number, long))
    too_large = "closed: 501 FRAME_ERROR - type 1, all octets = <<>>: {frame_too_large,"
    assert (await ended(small, connection)).startswith(too_large)


async def test_a_method_on_a_channel_that_is_not_open(ask: Asking) -> None:
    connection = await ask.connection()
    connection.wire.write(frames.frame(frames.METHOD, 1, methods.QUEUE_DECLARE.encode(queue="q", passive=True)))
    assert await ended(ask, connection) == "closed: 504 CHANNEL_ERROR - expected 'channel.open'"


async def test_heartbeats(asking: Callable[..., Asking]) -> None:
    """A broker sends them as often as was agreed on, or none."""
    often, never = await asking(query="?heartbeat=4").connection(), await asking(query="?heartbeat=0").connection()
    before, before_of_never = often.wire.inbound.heard, never.wire.inbound.heard

    async def has_beaten() -> bool:
        return often.wire.inbound.heard > before

    await eventually_async(has_beaten, what="the broker sends one")
    assert never.wire.inbound.heard == before_of_never
    assert not often.is_closed and not never.is_closed


async def test_another_password_or_token_is_taken_meanwhile(ask: Asking) -> None:
    """Brokers that know users by themselves take any: only tokens end."""
    connection = await ask.connection()
    await connection.update_secret(Secret("another"))
    assert not connection.is_closed


async def test_too_many_channels_of_a_user(
    asking: Callable[..., Asking], release: Release, name: Callable[[str], str]
) -> None:
    limited = asking(**add_user(release, user := name("user")))
    release.node.admin.put("user-limits", user, "max-channels", body={"value": 1})
    connection = await limited.connection()

    async def refused() -> bool:
        if not connection.is_closed:  # the broker counts a channel a moment after it was opened
            connection.wire.begin_channel()
        return connection.is_closed

    await eventually_async(refused, what="one more is refused")
    words = "closed: 530 NOT_ALLOWED - number of channels opened for user "
    assert (await ended(limited, connection)).startswith(words)
    release.node.admin.delete("users", user)


async def test_an_operator_who_ends_connections(
    asking: Callable[..., Asking], release: Release, name: Callable[[str], str]
) -> None:
    """The code shows that no message is to blame."""
    admin, passing = release.node.admin, asking(**add_user(release, user := name("user")))
    connection = await passing.connection()
    admin.delete("users", user)
    assert await ended(passing, connection) == "closed: 320 CONNECTION_FORCED - user 'U' is deleted"
    admin.vhost(vhost := name("passing"))
    passing = asking(vhost=vhost)
    connection = await passing.connection()
    admin.delete_vhost(vhost)
    assert (await ended(passing, connection)).startswith("closed: 320 CONNECTION_FORCED - vhost 'V' is ")
