"""What a broker says on a connection that is open, by itself or when it is given another password."""

from __future__ import annotations

import pytest

from agent.amqp.connect import connect
from agent.amqp.wire import frames, methods
from agent.amqp.wire.methods import Call
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import parse
from agent.errors import PermanentError
from tests.hostile.peer import FRAME_MAX, HostileBroker, Peer
from tests.integration.amqp.conftest import Connecting
from tests.lab.node import Node

RENEWED = Secret("r3newed-secret")


async def blocks_at_once(peer: Peer) -> None:
    """In one piece with connection.open-ok, as where an alarm is on when somebody connects."""
    await peer.greet()
    await peer.say(0, methods.CONNECTION_TUNE, frame_max=FRAME_MAX)
    await peer.expect(methods.CONNECTION_OPEN)
    both = methods.CONNECTION_OPEN_OK.encode(), methods.CONNECTION_BLOCKED.encode(reason="low on memory")
    await peer.send(b"".join(frames.frame(frames.METHOD, 0, each) for each in both))
    await peer.serve()


async def refuses_secrets(peer: Peer) -> None:
    async def refuse(peer: Peer, channel: int, call: Call) -> None:
        text = f"NOT_ALLOWED - New secret was refused by one of the backends: {call['new_secret']}"
        await peer.say(0, methods.CONNECTION_CLOSE, code=530, text=text)

    await peer.log_in()
    await peer.serve({methods.CONNECTION_UPDATE_SECRET: refuse})


async def test_a_broker_that_is_blocked_already_says_so_to_whoever_connects(connecting: Connecting) -> None:
    with HostileBroker(blocks_at_once) as broker:
        connection = await connecting(broker.uri)
        assert connection.blocked == "low on memory"
        told: list[str | None] = []
        connection.listen_blocked(told.append)
        assert told == ["low on memory"]


async def test_a_broker_takes_another_password_of_the_same_user(broker: Node, connecting: Connecting) -> None:
    connection = await connecting(broker.uri())
    await connection.update_secret(Secret("guest"))
    await connection.update_secret(RENEWED)  # the broker's own users are asked for it when they log in, and not here
    channel = await connection.channel()
    await channel.ask(methods.QUEUE_DECLARE, exclusive=True)


async def test_a_refusal_names_the_user_and_what_to_check() -> None:
    with HostileBroker(refuses_secrets) as broker:
        connection = await connect(parse(broker.uri), where="upstream origin", name="test")
        with pytest.raises(PermanentError) as caught:
            await connection.update_secret(RENEWED)
        text = str(caught.value)
        assert text.startswith(f"upstream origin 127.0.0.1:{broker.port}: the new password or token of user 'hostile'")
        assert "check that it is valid and issued for the same user" in text
        assert RENEWED.reveal() not in text
        assert connection.is_closed
