"""A broker that says our password, with what would move a terminal: nobody reads the one or is moved by the other."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import ExitStack
from typing import Any, Final

from agent.amqp.connect import connect
from agent.amqp.wire import methods
from agent.amqp.wire.methods import Call
from agent.core import fields
from agent.core.addresses import uri
from agent.core.addresses.secret import REDACTED
from tests.acceptance.command import federation_agent
from tests.hostile.peer import HostileBroker, Peer
from tests.hostile.scene import Scene
from tests.integration.federation.sites import policies
from tests.integration.status.asking import get, url
from tests.lab.waiting import DEADLINE, eventually

SECRET: Final = "s3cret"
ENCODED: Final = base64.b64encode(f"\0hostile\0{SECRET}".encode()).decode()
ECHO: Final = f"\x1b[2J\u202e{SECRET} in {ENCODED}"
HARMFUL: Final = ("\x1b", "\u202e")


async def in_its_greeting(peer: Peer) -> None:
    await peer.greet(tuple((key, fields.text(ECHO)) for key in ("product", "version", "cluster_name")))
    await peer.say(0, methods.CONNECTION_TUNE, channel_max=2047, frame_max=131_072, heartbeat=10)
    await peer.expect(methods.CONNECTION_OPEN)
    await peer.say(0, methods.CONNECTION_OPEN_OK)
    await peer.serve()


async def in_its_first_bytes(peer: Peer) -> None:
    await peer.send(SECRET.encode())


async def in_its_mechanisms(peer: Peer) -> None:
    await peer.say(0, methods.CONNECTION_START, minor=9, mechanisms=ECHO, locales="en_US")
    await peer.serve()


async def before_open(peer: Peer) -> None:
    await peer.greet()
    await peer.say(0, methods.CONNECTION_CLOSE, code=320, text=ECHO)
    await peer.serve()


async def after_open(peer: Peer) -> None:
    async def close(peer: Peer, channel: int, call: Call) -> None:
        await peer.say(0, methods.CONNECTION_CLOSE, code=320, text=ECHO)

    await peer.log_in()
    await peer.serve({methods.QUEUE_DECLARE: close, methods.EXCHANGE_DECLARE: close})


async def on_a_channel(peer: Peer) -> None:
    async def close(peer: Peer, channel: int, call: Call) -> None:
        await peer.say(channel, methods.CHANNEL_CLOSE, code=406, text=ECHO)

    await peer.log_in()
    await peer.serve({methods.QUEUE_DECLARE: close, methods.EXCHANGE_DECLARE: close})


ECHOES: Final = (
    in_its_greeting,
    in_its_first_bytes,
    in_its_mechanisms,
    before_open,
    after_open,
    on_a_channel,
)


async def when_blocked(peer: Peer) -> None:
    async def block(peer: Peer, channel: int, call: Call) -> None:
        await peer.say(0, methods.CONNECTION_BLOCKED, reason=ECHO)
        await peer.answer(channel, call)

    await peer.log_in()
    await peer.serve({methods.CHANNEL_OPEN: block})


async def test_a_password_in_the_reason_of_an_alarm() -> None:
    said: asyncio.Queue[str | None] = asyncio.Queue()
    with HostileBroker(when_blocked) as hostile:
        async with await connect(
            uri.parse(hostile.uri), where="upstream origin", name="test", within=DEADLINE
        ) as connection:
            connection.listen_blocked(said.put_nowait)
            await connection.channel()
            reason = await asyncio.wait_for(said.get(), DEADLINE)
    assert reason is not None
    assert REDACTED in reason
    assert SECRET not in reason


def test_a_password_that_is_echoed_is_shown_nowhere(scene: Scene) -> None:
    agent, vhost = scene.agent, scene.victim.vhost
    scene.victim.exchange().queue("#")
    with ExitStack() as stack:
        brokers = {echo.__name__: stack.enter_context(HostileBroker(echo)) for echo in ECHOES}
        upstreams = {name: {"uri": hostile.uri, "reconnect-delay": 1} for name, hostile in brokers.items()}
        http = {"listen": f"127.0.0.1:{agent.port}"}
        export = {"directory": str(agent.directory / "export"), "sample-interval": 1}
        sections: dict[str, Any] = {"agent": {"http": http, "status-export": export, "log": {"format": "console"}}}
        agent.write({vhost: {"upstreams": upstreams, "policies": policies()}}, **sections).start()

        def shown() -> bool:
            links = get(agent, "/api/links")
            return len(links) == len(ECHOES) and all(REDACTED in json.dumps(link) for link in links)

        eventually(shown, what="each link shows what its broker said, redacted", ignoring=OSError)
        texts = {path: json.dumps(get(agent, path), ensure_ascii=False) for path in ("/api/links", "/api/overview")}
        for arguments in (("plan", "-c", agent.path), ("links", "--url", url(agent))):
            done = federation_agent(*arguments)
            assert REDACTED in done.out
            assert not [letter for letter in HARMFUL if letter in done.out + done.err]
            texts[arguments[0]] = done.out + done.err
        texts["plan as JSON"] = federation_agent("plan", "-c", agent.path, "--format", "json").out
        assert agent.terminate() == 0
    texts["log"] = agent.log.read_text()
    assert not [letter for letter in HARMFUL if letter in texts["log"]]
    texts["export"] = "".join(path.read_text() for path in (agent.directory / "export").rglob("*.jsonl"))
    for name, text in texts.items():
        for form in (SECRET, ENCODED.rstrip("="), ENCODED[-9:-1]):
            assert form not in text, f"{name}: {text[max(0, text.find(form) - 300) :][:400]}"
    assert REDACTED in texts["export"]
