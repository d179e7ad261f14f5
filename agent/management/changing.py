"""HTTP APIs that are written to: a target gets objects, and of a source's clients permissions are taken for a while.

Of vhosts, only scratch ones are ever deleted; of parameters, only those that remember fences.

Why: docs/decisions/0066-migrate-by-objects.md, docs/decisions/0067-migrate-verdict.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agent.core.addresses.url_text import encode
from agent.core.migration.fences import PREFIX, Permissions
from agent.core.migration.objects import Body, ObjectKey, ObjectKind
from agent.management.answers import PermissionAnswer
from agent.management.client import ManagementClient

SCRATCH_PREFIX: Final = "federation-agent: rehearsal "
_ADMINISTRATOR: Final = "the tag administrator"
_NEEDS: Final = {
    ObjectKind.POLICY: "the tag policymaker, and permissions",
    ObjectKind.BINDING: "permission to read the source and to write the destination",
}
_ALL: Final = {"configure": ".*", "write": ".*", "read": ".*"}
_LISTS: Final = {ObjectKind.POLICY: "policies", ObjectKind.EXCHANGE: "exchanges", ObjectKind.QUEUE: "queues"}


class DeclaringClient(ManagementClient):
    """The HTTP API of a cluster that definitions are copied to."""

    async def declare(self, key: ObjectKey, body: Body) -> None:
        """Make an object, or make sure that it is there. Raises NotTakenError."""
        vhost, name = encode(key.vhost), encode(key.name)
        needs = f"{_NEEDS.get(key.kind, 'permission to configure it')}, in vhost {key.vhost!r}"
        if key.kind is ObjectKind.VHOST:  # its tags are written as one text
            body, needs = {**body, "tags": ",".join(body.get("tags", ()))}, _ADMINISTRATOR
            await self.write("PUT", f"vhosts/{vhost}", body, needs=needs)
        elif key.kind is ObjectKind.BINDING:
            path = f"bindings/{vhost}/e/{name}/{'e' if key.to_exchange else 'q'}/{encode(key.destination)}"
            await self.write("POST", path, body, needs=needs)
        else:
            await self.write("PUT", f"{_LISTS[key.kind]}/{vhost}/{name}", body, needs=needs)

    async def make_whole(self, vhost: str) -> None:
        """Give this user the permissions that the broker gives to whoever makes a vhost, if nobody got them."""
        if await self.half_made_vhosts([vhost]):
            path = f"permissions/{encode(vhost)}/{encode((await self.whoami()).name)}"
            await self.write("PUT", path, _ALL, needs=_ADMINISTRATOR)

    async def set_global_parameter(self, name: str, value: object) -> None:
        body = {"name": name, "value": value}
        await self.write("PUT", f"global-parameters/{encode(name)}", body, needs="the tag policymaker")

    async def delete_scratch(self, vhost: str) -> None:
        """Delete a vhost with all in it, if its name is that of a scratch vhost."""
        if not vhost.startswith(SCRATCH_PREFIX):
            raise ValueError("only scratch vhosts are deleted")
        await self.delete(f"vhosts/{encode(vhost)}", needs=_ADMINISTRATOR)


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
