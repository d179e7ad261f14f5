"""Gives a connection that is open another password of the same user.

Why: docs/decisions/0020-passwords-without-restart.md
"""

from __future__ import annotations

from typing import Final

import structlog

from agent.amqp.connect import Connection
from agent.core.addresses.expiry import token_expiry
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import AmqpUri
from agent.errors import BrokerError
from agent.tasks import GuardedTasks

TASK: Final = "renew a token"

log = structlog.get_logger()


def renew_connection(connection: Connection, uri: AmqpUri, tasks: GuardedTasks) -> None:
    """Use `uri`, which has another password, for the connection from now on. The broker gets the password only if it is
    a token that expires: brokers end what was opened with an expired token, and check other passwords at login only."""
    connection.uri = uri
    if uri.password is not None and token_expiry(uri.password.reveal()) is not None:
        tasks.once(TASK, _send(connection, uri.password))


async def _send(connection: Connection, secret: Secret) -> None:
    """Send the token. A broker that refuses it closes the connection, and its users connect again."""
    try:
        await connection.update_secret(secret)
    except BrokerError as error:
        log.warning("token not renewed", reason=str(error))
    else:
        log.info("token renewed", broker=connection.where)
