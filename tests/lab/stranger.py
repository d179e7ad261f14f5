"""Servers of a few lines, such as something that listens where RabbitMQ should and isn't it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

DEADLINE = 10.0
UNTIL_ACCEPTED = 5  # turns of the loop

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served(serve: Serve, *, tls: ssl.SSLContext | None = None, patience: float = 0.0) -> AsyncIterator[int]:
    """The port of a server that deals with each connection so, and closes it. At the end those that are open have
    `patience`, and none is left, whenever it came: a transport that is left is an error of whatever test runs when it
    is collected."""
    serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving[asyncio.create_task(_serve(serve, reader, writer))] = writer

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        # Closed only when nobody is being accepted: one that comes to a closed server is dropped without a close.
        asyncio.get_running_loop().remove_reader(server.sockets[0].fileno())
        for _ in range(UNTIL_ACCEPTED):
            await asyncio.sleep(0)
        if serving:
            _, late = await asyncio.wait(serving, timeout=patience)
            for task in late:
                task.cancel()
            await asyncio.wait(serving)
        server.close()
        for writer in serving.values():  # also of those that were cancelled before their first step
            writer.transport.abort()
        await asyncio.sleep(0)  # their sockets are closed then


async def _serve(serve: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def stranger(answer: bytes | None) -> AsyncIterator[int]:
    """Its port. It says the same to whoever says something, and hangs up; with None it stays silent."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
            writer.close()
            await writer.wait_closed()

    async with served(serve, patience=DEADLINE) as port:
        yield port


async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()
