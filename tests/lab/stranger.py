"""Something that listens where RabbitMQ should, and isn't it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

DEADLINE = 10.0


@asynccontextmanager
async def stranger(answer: bytes | None) -> AsyncIterator[int]:
    """Its port. It says the same to whoever says something, and hangs up; with None it stays silent."""
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
        writer.close()
        await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        if serving:
            await asyncio.wait(serving, timeout=DEADLINE)
