"""Servers of a few lines: an HTTP API with answers that a test changes, and a broker that hangs up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from pamqp import commands, frame

from agent.check.http_api import BrokerApi
from agent.core.addresses import uri
from tests.lab.stranger import served


class Answers:
    """By the first word of the route after /api; an unknown one is an empty list. `silent` never answers."""

    def __init__(self, *, silent: bool = False, **rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.silent = silent
        self.asked = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            route = (await reader.readuntil(b"\r\n\r\n")).decode().split()[1]
            self.asked += 1
            if self.silent:
                continue
            kind = "bindings" if "/bindings" in route else route.split("/")[2].partition("?")[0]
            body = json.dumps(self.rows.get(kind.replace("-", "_"), [])).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)


@asynccontextmanager
async def api(answers: Answers, **options: Any) -> AsyncIterator[BrokerApi]:
    async with served(answers.serve) as port:
        url = uri.parse_http(f"http://u:p@127.0.0.1:{port}")
        async with BrokerApi([url], where="broker", setting="--api", **options) as opened:
            yield opened


@asynccontextmanager
async def amqp_broker(*, hangs_up: Callable[[], None] | None = None) -> AsyncIterator[int]:
    """The port of one that opens channels and lets a queue be declared and bound. With `hangs_up` it calls that and
    closes the connection once a channel confirms."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        start = commands.Connection.Start(0, 9, {"capabilities": {"publisher_confirms": True}}, "PLAIN", "en_US")
        writer.write(frame.marshal(start, 0))
        while True:
            head = await reader.readexactly(7)
            size = int.from_bytes(head[3:7], "big")
            _, channel, method = frame.unmarshal(head + await reader.readexactly(size + 1))
            if (answer := _ANSWERS.get(method.name)) is not None:
                writer.write(frame.marshal(answer, channel))
            if hangs_up is not None and method.name == "Confirm.Select":
                await asyncio.sleep(0.3)
                writer.close()
                hangs_up()
                return

    async with served(serve) as port:
        yield port


_ANSWERS: Final[Mapping[str, Any]] = {
    "Connection.StartOk": commands.Connection.Tune(2047, 131072, 60),
    "Connection.Open": commands.Connection.OpenOk(),
    "Connection.Close": commands.Connection.CloseOk(),
    "Channel.Open": commands.Channel.OpenOk(),
    "Channel.Close": commands.Channel.CloseOk(),
    "Confirm.Select": commands.Confirm.SelectOk(),
    "Queue.Declare": commands.Queue.DeclareOk("amq.gen-x", 0, 0),
    "Queue.Bind": commands.Queue.BindOk(),
    "Basic.Consume": commands.Basic.ConsumeOk("tag"),
}
