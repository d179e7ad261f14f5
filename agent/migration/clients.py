"""The clients that are connected to vhosts of a cluster, as its HTTP API shows them: none may be while messages change
sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from agent.amqp.connect import PRODUCT
from agent.core.text import listed
from agent.errors import PermanentError
from agent.management.answers import ClientAnswer
from agent.management.client import ManagementClient

LONGEST_NAME: Final = 255
MOST_NAMED: Final = 5


async def clients_of(client: ManagementClient, where: str, vhosts: Mapping[str, AbstractSet[str]]) -> list[str]:
    """Those of the vhosts, but for agents' own connections, whose users each vhost has. Raises BrokerError."""
    await _demand_sight(client, where)
    return [
        f"{_described(each)} in vhost {vhost!r} of the {where}"
        for vhost, users in vhosts.items()
        for each in await client.clients(vhost)
        if not is_ours(each, users)
    ]


def refusal_of(clients: Sequence[str]) -> str:
    return f"clients are connected: {listed(clients, MOST_NAMED)}; end them, and keep them out until it is done"


async def _demand_sight(client: ManagementClient, where: str) -> None:
    """Raise PermanentError if others' connections aren't shown to the user."""
    if not (await client.whoami()).sees_others:
        raise PermanentError(
            f"{where}: whether clients are connected can't be seen: the user of its HTTP API needs the tag monitoring"
        )


def is_ours(client: ClientAnswer, users: AbstractSet[str]) -> bool:
    user: Any = client.get("user")
    return _property(client, "product") == PRODUCT and isinstance(user, str) and user in users


def _described(client: ClientAnswer) -> str:
    name = _property(client, "connection_name")
    named = f" ({name[:LONGEST_NAME]})" if isinstance(name, str) and name else ""
    user, host = (str(client.get(each, "?"))[:LONGEST_NAME] for each in ("user", "peer_host"))
    return f"user {user!r} of host {host}{named}"


def _property(client: ClientAnswer, name: str) -> Any:
    properties: Any = client.get("client_properties")
    return properties.get(name) if isinstance(properties, dict) else None
