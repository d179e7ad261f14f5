"""What a fence remembers, by a clock that shows whole seconds."""

from __future__ import annotations

from email.utils import formatdate
from typing import Any, Final

from aiohttp import web

from agent.core.addresses import uri
from agent.core.migration.fences import SETTLED_AFTER, Permissions, read_fence
from agent.core.settings import DownstreamSettings
from agent.management.changing import FencingClient
from agent.migration.fencing import fence
from tests.unit.migration.http_api import served

AT: Final = 1_795_000_000
HAD: Final = {"configure": "^a", "write": "^b", "read": "^c"}
MISSING: Final = {"error": "Object Not Found", "reason": "Not Found"}


class Api:
    """Of a source with one client's user. By its clock nothing takes any time."""

    def __init__(self) -> None:
        self.permissions = HAD
        self.parameters: dict[str, Any] = {}

    async def answer(self, request: web.Request) -> web.Response:
        path = request.match_info["path"].split("/")
        if request.method == "PUT":
            self._take(path, await request.json())
            found, status = None, 204
        else:
            found = self._found(path)
            status = 200 if found != MISSING else 404
        return web.json_response(found, status=status, headers={"Date": formatdate(AT, usegmt=True)})

    def _take(self, path: list[str], content: Any) -> None:
        if path[0] == "permissions":
            self.permissions = content
        else:
            self.parameters[path[1]] = content["value"]

    def _found(self, path: list[str]) -> Any:
        permissions = {"vhost": "v", "user": "shop", **self.permissions}
        match path:
            case ["whoami"]:
                return {"name": "mover", "tags": ["administrator"]}
            case ["permissions", *one]:
                return permissions if one else [permissions]
            case ["global-parameters"]:
                return [{"name": name, "value": value} for name, value in self.parameters.items()]
            case ["global-parameters", name]:
                return {"name": name, "value": self.parameters[name]} if name in self.parameters else MISSING
        return []


async def test_a_connection_of_the_rest_of_the_second_in_which_it_was_fenced_is_one_of_before() -> None:
    api, source = Api(), DownstreamSettings(uris=(uri.parse("amqp://mover:secret@there"),))
    async with (
        served(api.answer) as port,
        FencingClient([uri.parse_http(f"http://mover:secret@127.0.0.1:{port}")]) as client,
    ):
        account = await fence(client, source, ["v"], ["shop"], closes=False)
    assert account.done == {("v", "shop"): "is fenced"}
    assert api.permissions == {"configure": "^$", "write": "^$", "read": "^c"}
    [(name, value)] = api.parameters.items()
    found = read_fence(name, value)
    assert found is not None and found.had == Permissions(**HAD)
    assert not found.covers(AT + 0.999 + SETTLED_AFTER)
    assert found.covers(AT + 1 + SETTLED_AFTER)
