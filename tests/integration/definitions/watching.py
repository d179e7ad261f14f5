"""A process that watches, and prints one line a reload: what caused it, and what the file says."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agent.amqp.broker_events import DEFINITION_EVENTS, BrokerEvent, NoEvents, subscribe
from agent.amqp.connect import connect
from agent.core.addresses.uri import parse
from agent.downstream.watch import ReloadCause, Watcher


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


@asynccontextmanager
async def events_of(uri: str) -> AsyncIterator[AsyncIterator[BrokerEvent] | None]:
    async with await connect(parse(uri), where="downstream", name="watching") as connection:
        events = await subscribe(connection, DEFINITION_EVENTS)
        say("deaf" if isinstance(events, NoEvents) else "hearing")
        yield None if isinstance(events, NoEvents) else aiter(events)


async def main(document: str, uri: str) -> None:
    async def reload(causes: frozenset[ReloadCause]) -> None:
        say("reload", ",".join(sorted(causes)), await asyncio.to_thread(Path(document).read_text))

    watcher = Watcher(
        reload,
        files=lambda: [document],
        events=lambda: events_of(uri),
        on_error=lambda error: say("error", type(error).__name__),
    )
    watcher.handle_hangup()
    await watcher.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
