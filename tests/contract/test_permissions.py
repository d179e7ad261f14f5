"""What a user may not do. The agent's client adds the permission to refusals of brokers before 4.0, which lack it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from agent.amqp.wire import methods
from tests.contract.asking import OK, Asking, Release
from tests.contract.test_declares import NEW

LOOK_AT_QUEUE: Final = {"3.10": NEW, "4.3": "configure queue 'q'"}
LOOK_AT_MISSING_QUEUE: Final = {"3.10": "404 NOT_FOUND - no queue 'gone' in vhost 'V'", "4.3": "configure queue 'gone'"}
LOOK_AT_EXCHANGE: Final = {"3.10": OK, "4.3": "configure exchange 'x'"}
LOOK_AT_MISSING_EXCHANGE: Final = {
    "3.10": "404 NOT_FOUND - no exchange 'gone' in vhost 'V'",
    "4.3": "configure exchange 'gone'",
}
REFUSED: Final = "403 ACCESS_REFUSED - "
BEHIND: Final = " in vhost 'V' refused for user 'U'"


@dataclass(frozen=True, slots=True)
class Limited:
    """A user with few permissions, in a vhost with queue "q" and the exchanges "x" (topic) and "y"."""

    ask: Asking
    release: Release
    user: str

    def may(self, configure: str = "^$", write: str = "^$", read: str = "^$") -> None:
        admin, vhost = self.release.node.admin, self.release.vhost
        admin.permissions(vhost, self.user, configure=configure, write=write, read=read)


@pytest.fixture
def limited(release: Release, asking: Callable[..., Asking], name: Callable[[str], str]) -> Iterator[Limited]:
    admin, vhost, user = release.node.admin, release.vhost, name("limited")
    admin.queue(vhost, "q")
    admin.exchange(vhost, "x", "topic")
    admin.exchange(vhost, "y", "fanout")
    admin.user(user, "p")
    yield Limited(asking(user=user, password="p"), release, user)
    admin.delete("users", user)


def lacking(answer: str) -> str:
    """Of a refusal, the permission and what on: "read queue 'q'"."""
    if not answer.startswith(REFUSED):
        return answer
    assert answer.endswith(BEHIND), answer
    return answer.removeprefix(REFUSED).removesuffix(BEHIND).replace(" access to ", " ")


async def test_each_method_with_no_permission(limited: Limited) -> None:
    limited.may()
    ask = limited.ask
    questions = {
        "configure queue 'q'": [await ask.queue("q"), await ask(methods.QUEUE_DELETE, queue="q")],
        "configure exchange 'x'": [await ask.exchange("x", "topic"), await ask(methods.EXCHANGE_DELETE, exchange="x")],
        "read queue 'q'": [await (await ask.line()).consume("q", "tag"), await ask(methods.BASIC_GET, queue="q")],
        "read queue 'gone'": [await (await ask.line()).consume("gone", "tag")],
        "write queue 'q'": [await ask.bind("x", "q", "k")],
        "write exchange 'x'": [await ask.publish("x", "k")],
        "write exchange 'amq.default'": [await ask.publish("", "q")],
        "write exchange 'y'": [
            await ask(methods.EXCHANGE_BIND, destination="y", source="x"),
            await ask(methods.EXCHANGE_UNBIND, destination="y", source="x"),
        ],
    }
    assert {key: {lacking(each) for each in answers} for key, answers in questions.items()} == {
        key: {key} for key in questions
    }
    assert lacking(await ask(methods.QUEUE_DECLARE, exclusive=True)).startswith("configure queue 'amq.gen-")


async def test_bindings_need_to_read_their_source(limited: Limited) -> None:
    limited.may(write="^[qy]$")
    ask = limited.ask
    assert lacking(await ask.bind("x", "q", "k")) == "read exchange 'x'"
    assert lacking(await ask(methods.EXCHANGE_BIND, destination="y", source="x")) == "read exchange 'x'"


async def test_looking_needs_to_configure_from_4_3_on(limited: Limited) -> None:
    limited.may()
    ask, says = limited.ask, limited.release.says
    assert lacking(await ask.counted("q")) == says(LOOK_AT_QUEUE)
    assert lacking(await ask.counted("gone")) == says(LOOK_AT_MISSING_QUEUE)
    assert lacking(await ask.exchange("x", "topic", passive=True)) == says(LOOK_AT_EXCHANGE)
    assert lacking(await ask.exchange("gone", "topic", passive=True)) == says(LOOK_AT_MISSING_EXCHANGE)
    assert await ask.exchange("", "direct", passive=True) == f"{REFUSED}operation not permitted on the default exchange"


async def test_topic_permissions(limited: Limited) -> None:
    limited.may(write=".*", read=".*")
    grant = {"exchange": "x", "write": "^ok", "read": "^ok"}
    limited.release.node.admin.put("topic-permissions", limited.release.vhost, limited.user, body=grant)
    ask = limited.ask
    assert await ask.publish("x", "ok.1") == "returned 312 NO_ROUTE, ack"
    assert lacking(await ask.publish("x", "no")) == "write topic 'no' in exchange 'x'"
    assert lacking(await ask.bind("x", "q", "no")) == "read topic 'no' in exchange 'x'"
    to_y = {"destination": "y", "source": "x", "routing_key": "no"}
    assert lacking(await ask(methods.EXCHANGE_BIND, **to_y)) == "read topic 'no' in exchange 'x'"
    assert lacking(await ask(methods.EXCHANGE_UNBIND, **to_y)) == "read topic 'no' in exchange 'x'"
