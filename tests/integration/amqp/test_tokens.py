"""A broker whose users log in with tokens that end while connections live on."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from agent.amqp.connect import Connection
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.core.addresses.secret import Secret
from agent.errors import PermanentError
from tests.integration.amqp.conftest import Connecting
from tests.lab.lab import Lab
from tests.lab.node import DEFAULT_PLUGINS, Node

LIFE: Final = 4.0  # seconds of a token that is about to end


@dataclass(frozen=True, slots=True)
class TokenBroker:
    node: Node
    key: Path

    def token(self, seconds: float) -> str:
        """For a user who may do everything, for so long."""
        scope = [f"rabbitmq.{right}:*/*" for right in ("read", "write", "configure")]
        claims = {"sub": "agent", "aud": ["rabbitmq"], "scope": scope, "exp": int(time.time() + seconds)}
        signed = b".".join(_encoded(json.dumps(each).encode()) for each in ({"alg": "RS256", "kid": "k"}, claims))
        command = ["openssl", "dgst", "-sha256", "-sign", str(self.key)]
        signature = subprocess.run(command, input=signed, capture_output=True, check=True).stdout
        return b".".join((signed, _encoded(signature))).decode()

    def uri(self, token: str) -> str:
        return f"amqp://agent:{token}@127.0.0.1:{self.node.amqp_port}"


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


@pytest.fixture(scope="module")
def token_broker(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> TokenBroker:
    directory = tmp_path_factory.mktemp("tokens")
    key, public = directory / "key.pem", directory / "public.pem"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], capture_output=True, check=True)
    subprocess.run(["openssl", "rsa", "-in", key, "-pubout", "-out", public], capture_output=True, check=True)
    for each in (directory, public):  # the broker may run as a user of its own
        each.chmod(0o755)
    conf = [
        "auth_backends.1 = internal",
        "auth_backends.2 = rabbit_auth_backend_oauth2",
        "auth_oauth2.resource_server_id = rabbitmq",
        f"auth_oauth2.signing_keys.k = {public}",
        "auth_oauth2.default_key = k",
    ]
    plugins = (*DEFAULT_PLUGINS, "rabbitmq_auth_backend_oauth2")
    return TokenBroker(lab.node("tokens", plugins=plugins, conf=conf).start(), key)


async def declare(connection: Connection) -> Any:
    channel = await connection.channel()
    return await channel.ask(methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, exclusive=True)


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
