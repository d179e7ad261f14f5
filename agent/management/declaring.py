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
_PUT: Final = "PUT"


class DeclaringClient(ManagementClient):
    """The HTTP API of a cluster that definitions are copied to."""

    async def declare(self, key: ObjectKey, body: Body) -> None:
        """Make an object, or make sure that it is there. Raises NotTakenError."""
        vhost, name = encode(key.vhost), encode(key.name)
        needs = f"permission to configure it, in vhost {key.vhost!r}"
        match key.kind:
            case ObjectKind.VHOST:
                await self.write(_PUT, f"vhosts/{vhost}", _vhost(body), needs=_ADMINISTRATOR)
            case ObjectKind.POLICY:
                needs = f"the tag policymaker, and permissions in vhost {key.vhost!r}"
                await self.write(_PUT, f"policies/{vhost}/{name}", body, needs=needs)
            case ObjectKind.EXCHANGE:
                await self.write(_PUT, f"exchanges/{vhost}/{name}", body, needs=needs)
            case ObjectKind.QUEUE:
                await self.write(_PUT, f"queues/{vhost}/{name}", body, needs=needs)
            case ObjectKind.BINDING:
                to = "e" if key.to_exchange else "q"
                path = f"bindings/{vhost}/e/{name}/{to}/{encode(key.destination)}"
                needs = f"permission to read the source and to write the destination, in vhost {key.vhost!r}"
                await self.write("POST", path, body, needs=needs)

    async def delete_scratch(self, vhost: str) -> None:
        """Delete a vhost with all in it, if its name is that of a scratch vhost."""
        if not vhost.startswith(SCRATCH_PREFIX):
            raise ValueError("only scratch vhosts are deleted")
        await self.delete(f"vhosts/{encode(vhost)}", needs=_ADMINISTRATOR)


def _vhost(body: Body) -> Body:
    """Tags are written as one text."""
    return {**body, "tags": ",".join(body.get("tags", ()))}
