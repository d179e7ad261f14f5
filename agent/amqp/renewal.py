"""Another password of the same user for a connection that is open.

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
    """`uri` has another password and is the connection's from now on. The broker is given the password where it is a
    token that expires: it ends what was opened with the former one, and asks for other passwords at login only.
    """
    connection.uri = uri
    if uri.password is not None and token_expiry(uri.password.reveal()) is not None:
        tasks.once(TASK, _send(connection, uri.password))


async def _send(connection: Connection, secret: Secret) -> None:
    """A broker that refuses the token closes the connection, and its users connect again."""
    try:
        await connection.update_secret(secret)
    except BrokerError as error:
        log.warning("token not renewed", reason=str(error))
    else:
        log.info("token renewed", broker=connection.where)
