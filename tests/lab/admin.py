"""A broker's HTTP API in few words: what a test wants to be there, and what is there."""

import base64
import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote, urlsplit

from tests.lab.leftovers import Leftovers
from tests.lab.waiting import DEADLINE

ALL: Final = ".*"


class AdminError(AssertionError):
    """The broker refused what a test asked of its HTTP API."""

    def __init__(self, method: str, path: str, status: int, answer: str) -> None:
        super().__init__(f"{method} {path}: {status} {answer}")
        self.status = status


class Admin:
    """The management API of one broker; parts of a path are given one by one and quoted here."""

    def __init__(
        self, url: str, user: str = "guest", password: str = "guest", *, leftovers: Leftovers | None = None
    ) -> None:
        self._address = urlsplit(url).netloc
        self._leftovers = leftovers
        credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"}

    def get(self, *path: str, query: str = "") -> Any:
        return self._request("GET", path, query=query)

    def put(self, *path: str, body: object = None) -> Any:
        answer = self._request("PUT", path, body=body)
        if self._leftovers is not None:
            self._leftovers.made(self._address, path, lambda: self._remove(path))
        return answer

    def post(self, *path: str, body: object = None) -> Any:
        return self._request("POST", path, body=body)

    def delete(self, *path: str) -> Any:
        answer = self._request("DELETE", path)
        if self._leftovers is not None:
            self._leftovers.removed(self._address, path)
        return answer

    def vhost(self, name: str, user: str = "guest") -> None:
        self.put("vhosts", name, body={})
        self.permissions(name, user)

    def delete_vhost(self, name: str) -> None:
        if name == "/":
            raise ValueError("deleting vhost / loses amq.rabbitmq.event, which nothing declares again")
        self.delete("vhosts", name)

    @contextmanager
    def temporary_vhost(self, name: str, user: str = "guest") -> Iterator[str]:
        self.vhost(name, user)
        try:
            yield name
        finally:
            self.delete_vhost(name)

    def user(self, name: str, password: str, tags: str = "") -> None:
        self.put("users", name, body={"password": password, "tags": tags})

    def permissions(self, vhost: str, user: str, *, configure: str = ALL, write: str = ALL, read: str = ALL) -> None:
        self.put("permissions", vhost, user, body={"configure": configure, "write": write, "read": read})

    def parameter(self, component: str, vhost: str, name: str, value: object) -> None:
        self.put("parameters", component, vhost, name, body={"value": value})

    def global_parameter(self, name: str, value: object) -> None:
        self.put("global-parameters", name, body={"value": value})

    def policy(
        self,
        vhost: str,
        name: str,
        pattern: str,
        *,
        definition: Mapping[str, object],
        apply_to: str = "all",
        priority: int = 0,
    ) -> None:
        body = {"pattern": pattern, "definition": definition, "apply-to": apply_to, "priority": priority}
        self.put("policies", vhost, name, body=body)

    def exchange(
        self,
        vhost: str,
        name: str,
        kind: str = "topic",
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        flags = {"durable": durable, "auto_delete": auto_delete, "internal": internal}
        self.put("exchanges", vhost, name, body={"type": kind, **flags, "arguments": arguments or {}})

    def queue(
        self,
        vhost: str,
        name: str,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        body = {"durable": durable, "auto_delete": auto_delete, "arguments": arguments or {}}
        self.put("queues", vhost, name, body=body)

    def bind(
        self,
        vhost: str,
        source: str,
        destination: str,
        key: str = "",
        *,
        to_exchange: bool = False,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        body = {"routing_key": key, "arguments": arguments or {}}
        self.post("bindings", vhost, "e", source, "e" if to_exchange else "q", destination, body=body)

    def _remove(self, path: tuple[str, ...]) -> bool:
        """Whether it was there."""
        try:
            self.delete(*path)
        except AdminError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return False
            raise
        return True

    def _request(self, method: str, parts: tuple[str, ...], *, query: str = "", body: object = None) -> Any:
        path = "/".join(["/api", *(quote(part, safe="") for part in parts)]) + (f"?{query}" if query else "")
        connection = http.client.HTTPConnection(self._address, timeout=DEADLINE)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, body=content, headers=self._headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise AdminError(method, path, answer.status, text)
        return json.loads(text) if text else None
