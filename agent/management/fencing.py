"""What `migrate fence` and `migrate unfence` write to the source: permissions, and parameters that remember them.

Why: docs/decisions/0067-migrate-verdict.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agent.core.addresses.url_text import encode
from agent.core.migration.fences import PREFIX, Permissions
from agent.management.answers import PermissionAnswer
from agent.management.client import ManagementClient

_ADMINISTRATOR: Final = "the tag administrator"


class FencingClient(ManagementClient):
    """The HTTP API of a cluster whose clients' permissions are taken and given back."""

    async def permissions_in(self, vhost: str, user: str) -> Permissions | None:
        """None if the user has none there, or there is no such user."""
        path = f"permissions/{encode(vhost)}/{encode(user)}"
        answer = await self.get(path, needs=_ADMINISTRATOR)
        if answer is None:
            return None
        found = self._taken(path, answer, PermissionAnswer)
        return Permissions(found["configure"], found["write"], found["read"])

    async def set_permissions(self, vhost: str, user: str, wanted: Permissions) -> None:
        """Raises NotTakenError, as for a user that is gone."""
        content = {"configure": wanted.configure, "write": wanted.write, "read": wanted.read}
        await self.write("PUT", f"permissions/{encode(vhost)}/{encode(user)}", content, needs=_ADMINISTRATOR)

    async def remember(self, name: str, value: Mapping[str, Any]) -> None:
        await self.write("PUT", f"global-parameters/{encode(_own(name))}", {"value": value}, needs=_ADMINISTRATOR)

    async def forget(self, name: str) -> None:
        await self.delete(f"global-parameters/{encode(_own(name))}", needs=_ADMINISTRATOR)

    async def close_connection(self, name: str) -> None:
        await self.delete(f"connections/{encode(name)}", needs=_ADMINISTRATOR)


def _own(name: str) -> str:
    if not name.startswith(PREFIX):
        raise ValueError("only parameters of fences are written")
    return name
