"""An HTTP API that misbehaves: a proxy before a real broker's that answers some questions itself; a table of how."""

from __future__ import annotations

import gzip
import http.client
import http.server
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlsplit

Answer: TypeAlias = Iterator[bytes]
"""The body, piece by piece."""
JSON: Final = {"Content-Type": "application/json"}
MIB: Final = b" " * 2**20


@dataclass(frozen=True, slots=True)
class Misbehaviour:
    """Which question is answered by what, each where the path is empty; `{vhost}` in the path is the hostile
    neighbour's."""

    path: str
    answer: Callable[[], Answer]
    headers: Mapping[str, str] = field(default_factory=lambda: dict(JSON))
    status: int = 200
    resets: bool = False  # rather than answering
    times: int | None = None  # so often, and then as the broker; None for always
    shows: str = ""  # what the problem that is shown says


def _said(value: Any) -> Callable[[], Answer]:
    return lambda: iter([value if isinstance(value, bytes) else json.dumps(value).encode()])


def _exchanges(arguments: str) -> Callable[[], Answer]:
    """One exchange that would be federated, with those arguments."""
    head = b'[{"name":"fed.x","type":"topic","durable":true,"auto_delete":false,"internal":false,"arguments":'
    return lambda: iter([head, arguments.encode(), b"}]"])


def _endless_objects() -> Answer:
    yield b"["
    one = b'{"name":"x","type":"topic","durable":true,"auto_delete":false,"internal":false,"arguments":{}},'
    while True:
        yield one * 5_000


def _endless_blanks() -> Answer:
    while True:
        yield MIB


def _endless_brackets() -> Answer:
    yield b'[{"name":"fed.x","arguments":{"a":'
    while True:
        yield b"[1," * 100_000


def _drip() -> Answer:
    yield b"["
    while True:
        time.sleep(0.05)
        yield b" "


def _many_parameters() -> Answer:
    one = {"component": "federation-upstream", "vhost": "nobody's", "value": {"uri": "amqp://h"}}
    yield json.dumps([one | {"name": f"u{number}"} for number in range(30_000)]).encode()


def _many_addresses() -> Answer:
    value = {"uri": ["amqp://h"] * 2_000}
    yield json.dumps([{"component": "federation-upstream", "vhost": "nobody's", "name": "u", "value": value}]).encode()


VHOST: Final = "exchanges/{vhost}"
BINDINGS: Final = "exchanges/{vhost}/fed.x/bindings/source"
DRIP: Final = Misbehaviour("overview", _drip)
MISBEHAVIOURS: Final[Mapping[str, Misbehaviour]] = {
    "endless list": Misbehaviour(VHOST, _endless_objects, shows="the response has more than"),
    "endless blanks": Misbehaviour(VHOST, _endless_blanks, shows="the response has more than 64 MiB"),
    "endless object": Misbehaviour(VHOST, _endless_brackets, shows="the response has objects larger than"),
    "endless overview": Misbehaviour("overview", _endless_blanks, shows="the response has more than 1024 KiB"),
    "nested": Misbehaviour(VHOST, _exchanges("[" * 1200 + "]" * 1200), shows="'fed.x' (it is nested deeper than"),
    "nested value": Misbehaviour(
        VHOST, _exchanges('{"a":' + "[" * 65 + "]" * 65 + "}"), shows="'fed.x' (it is nested deeper than"
    ),
    "10**400": Misbehaviour(VHOST, _exchanges('{"n":1' + "0" * 400 + "}"), shows="'fed.x' (it holds a number"),
    "10**5000": Misbehaviour(VHOST, _exchanges('{"n":1' + "0" * 5000 + "}"), shows="'fed.x' (it holds a number"),
    "NaN": Misbehaviour(VHOST, _exchanges('{"n":NaN}'), shows="'fed.x' (it holds a number"),
    "large argument": Misbehaviour(
        VHOST, _exchanges('{"a":"' + "y" * 4_500_000 + '"}'), shows="'fed.x' (it is larger than"
    ),
    "many values": Misbehaviour(
        VHOST, _exchanges('{"a":[' + "0," * 50_000 + "0]}"), shows="'fed.x' (it holds more than"
    ),
    "many parameters": Misbehaviour("parameters", _many_parameters, shows="more than 10000 parameters"),
    "many addresses": Misbehaviour("parameters", _many_addresses, shows="more than 1000 of them"),
    "gzip": Misbehaviour(
        VHOST,
        _said(gzip.compress(b"[" + b" " * 10**8 + b"]")),
        {**JSON, "Content-Encoding": "gzip"},
        shows="the response is compressed",
    ),
    "no name": Misbehaviour(VHOST, _said([{"type": "topic"}]), shows="an object of the response has no 'name'"),
    "wrong type": Misbehaviour(VHOST, _said([{"name": ["x"]}]), shows="has no 'name' that is text"),
    "no list": Misbehaviour(VHOST, _said({"name": "x"}), shows="the response can't be read (not a list of objects)"),
    "no objects": Misbehaviour(VHOST, _said([1, None]), shows="the response can't be read"),
    "no JSON": Misbehaviour(VHOST, _said(b'[{"name": }]'), shows="the response can't be read (no JSON)"),
    "no cluster name": Misbehaviour("overview", _said({"rabbitmq_version": "4"}), shows="has no 'cluster_name'"),
    "no overview": Misbehaviour("overview", _said([]), shows="has no 'cluster_name'"),
    "nested overview": Misbehaviour("overview", _said(b"[" * 5000), shows="not RabbitMQ's HTTP API"),
    "bindings without a key": Misbehaviour(BINDINGS, _said([{"source": "fed.x"}]), shows="has no 'destination'"),
    "bindings that break off": Misbehaviour(
        BINDINGS, _said(b"["), {**JSON, "Content-Length": "100"}, shows="the response was cut short"
    ),
    "vhost without a name": Misbehaviour("vhosts", _said([{}]), shows="has no 'name'"),
    "parameter without a vhost": Misbehaviour(
        "parameters", _said([{"component": "shovel", "name": "s"}]), shows="has no 'vhost'"
    ),
    "policy without a pattern": Misbehaviour(
        "policies", _said([{"vhost": "/", "name": "p"}]), shows="has no 'pattern'"
    ),
    "native link without a vhost": Misbehaviour("federation-links", _said([{"upstream": "u"}])),
    "global parameter of another type": Misbehaviour(
        "global-parameters/federation-agent", _said({"value": {"upstreams": [1]}}), shows="expected a mapping"
    ),
}


@dataclass
class HostileApi:
    """Passes on what is asked, until `misbehaviour` is set."""

    target: str
    port: int = 0
    vhost: str = ""
    misbehaviour: Misbehaviour | None = None
    asked: list[str] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return f"http://guest:guest@127.0.0.1:{self.port}"

    def answers(self, path: str) -> Misbehaviour | None:
        self.asked.append(path)
        wanted = self.misbehaviour
        if wanted is None:
            return None
        if wanted.path and path != "/api/" + wanted.path.replace("{vhost}", quote(self.vhost, safe="")):
            return None
        if wanted.times is not None and self.asked.count(path) > wanted.times:
            return None
        return wanted


@contextmanager
def hostile_api(target: str) -> Iterator[HostileApi]:
    api = HostileApi(target)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(OSError):
                found = api.answers(self.path.partition("?")[0])
                self._pass_on() if found is None else self._misbehave(found)

        def _misbehave(self, found: Misbehaviour) -> None:
            self.close_connection = True
            if found.resets:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                return
            self.send_response(found.status)
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.end_headers()
            for piece in found.answer():
                self.wfile.write(piece)

        def _pass_on(self) -> None:
            connection = http.client.HTTPConnection(urlsplit(api.target).netloc, timeout=30)
            connection.request("GET", self.path, headers={"Authorization": self.headers["Authorization"]})
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Nobody reads it."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        api.port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield api
        server.shutdown()
