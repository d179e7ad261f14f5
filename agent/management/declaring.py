"""Objects made over the HTTP API, and scratch vhosts, which alone are ever deleted.

Why: docs/decisions/0066-migrate-by-objects.md
"""

from __future__ import annotations

from typing import Final

from agent.core.addresses.url_text import encode
from agent.core.migration.objects import Body, ObjectKey, ObjectKind
from agent.management.client import ManagementClient

SCRATCH_PREFIX: Final = "federation-agent: rehearsal "
_ADMINISTRATOR: Final = "the tag administrator"
_NEEDS: Final = {
    ObjectKind.POLICY: "the tag policymaker, and permissions",
    ObjectKind.BINDING: "permission to read the source and to write the destination",
}
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

    async def set_global_parameter(self, name: str, value: object) -> None:
        body = {"name": name, "value": value}
        await self.write("PUT", f"global-parameters/{encode(name)}", body, needs="the tag policymaker")

    async def delete_scratch(self, vhost: str) -> None:
        """Delete a vhost with all in it, if its name is that of a scratch vhost."""
        if not vhost.startswith(SCRATCH_PREFIX):
            raise ValueError("only scratch vhosts are deleted")
        await self.delete(f"vhosts/{encode(vhost)}", needs=_ADMINISTRATOR)
