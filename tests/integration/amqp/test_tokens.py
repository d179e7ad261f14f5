"""A broker whose users log in with tokens that end while connections live on."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from agent.amqp.connect import Connection
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.core.addresses.secret import Secret
from agent.errors import PermanentError
from tests.integration.amqp.conftest import Connecting
from tests.lab.tokens import TokenBroker

LIFE: Final = 10.0  # seconds of a token that is about to end


async def declare(connection: Connection) -> Any:
    channel = await connection.channel()
    return await channel.ask(methods.QUEUE_DECLARE, exclusive=True)


@pytest.mark.thorough
async def test_a_connection_outlives_its_token_by_another_one(
    token_broker: TokenBroker, connecting: Connecting
) -> None:
    connection = await connecting(token_broker.uri(token_broker.token(LIFE)))
    await declare(connection)
    await asyncio.sleep(LIFE + 1)
    with pytest.raises(ChannelClosedError, match="ACCESS_REFUSED"):
        await declare(connection)
    await connection.update_secret(Secret(token_broker.token(60)))
    await declare(connection)


async def test_what_the_issuer_has_not_signed_is_refused(token_broker: TokenBroker, connecting: Connecting) -> None:
    connection = await connecting(token_broker.uri(token_broker.token(60)))
    with pytest.raises(PermanentError, match="new password or token of user 'agent' was refused"):
        await connection.update_secret(Secret(token_broker.token(60)[:-9] + "forged-it"))
    assert connection.is_closed
