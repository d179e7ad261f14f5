from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from agent.core.addresses import http_url
from agent.core.addresses.url_text import Tls
from agent.core.links.upstream_account import QueueCounts
from agent.management import transport
from agent.network import tls_context
from agent.runtime import upstream_looks
from agent.runtime.upstream_looks import Asked, UpstreamLooks, queue_counts
from agent.status.board import Board
from tests.lab.certificates import Authority
from tests.unit.runtime.http_api import HttpApi, http_api

QUEUES = "queues/%2F"


@pytest.mark.parametrize(
    ("answer", "counts"),
    [
        ({"messages": 3, "message_stats": {"publish": 9, "ack": 4, "deliver_no_ack": 1}}, QueueCounts(9, 5, 3)),
        ({"messages": 3, "message_stats": {"publish": 9, "get_no_ack": 2, "deliver_get": 7}}, QueueCounts(9, 2, 3)),
        ({"messages": 11}, QueueCounts(0, 0, 11)),
        ({"message_stats": {"publish": 9}}, None),
        ({}, None),
        ({"messages": None, "message_stats": {}}, None),
        ({"messages": 3, "message_stats": []}, None),
        ({"messages": 3, "message_stats": {"publish": "9"}}, None),
        ({"messages": -1, "message_stats": {"publish": 9}}, None),
        ({"messages": 3, "message_stats": {"publish": 2**52}}, None),
        ({"messages": 10**30, "message_stats": {"publish": 9}}, None),
        ({"messages": 3, "message_stats": dict.fromkeys(("ack", "deliver_no_ack", "get_no_ack"), 2**53)}, None),
    ],
)
def test_what_a_broker_shows_of_a_queue(answer: dict[str, Any], counts: QueueCounts | None) -> None:
    assert queue_counts(cast("Any", answer)) == counts


@dataclass
class Link:
    upstream_queue: tuple[Asked, str] | None
    seen: list[QueueCounts | None] = field(default_factory=list)

    def look_upstream(self, counts: QueueCounts | None, now: float) -> None:  # noqa: ARG002 - it is called with both
        self.seen.append(counts)


@pytest.fixture
def api() -> Iterator[HttpApi]:
    with http_api() as running:
        running.answers[QUEUES] = [
            {"name": name, "messages": 1, "message_stats": {"publish": number}} for number, name in enumerate("abc")
        ]
        yield running


def asked(api: HttpApi, upstream: str = "origin") -> Asked:
    return Asked((http_url.parse(api.url),), "/", upstream)


def looks(*links: Link) -> UpstreamLooks:
    return UpstreamLooks(lambda: links, Board(lambda: 0.0, "a"), every=0.0)


@dataclass
class Counted:
    """An answer, and how often it was asked for."""

    answer: Any
    questions: int = 0

    def __call__(self) -> Any:
        self.questions += 1
        return self.answer


def test_one_question_is_for_all_links_of_a_vhost(api: HttpApi) -> None:
    queues = api.answers[QUEUES] = Counted(api.answers[QUEUES])
    links = [Link((asked(api), "a")), Link((asked(api, "same"), "c")), Link((asked(api), "none")), Link(None)]
    asyncio.run(looks(*links).look())
    assert [link.seen for link in links] == [[QueueCounts(0, 0, 1)], [QueueCounts(2, 0, 1)], [None], []]
    assert queues.questions == 1


def test_an_answer_for_what_has_changed_meanwhile_counts_nowhere(api: HttpApi) -> None:
    link = Link((asked(api), "a"))
    answer = api.answers[QUEUES]

    def other_queue() -> Any:
        link.upstream_queue = (asked(api), "b")
        return answer

    api.answers[QUEUES] = other_queue
    asyncio.run(looks(link).look())
    assert link.seen == []


@pytest.mark.parametrize("refusal", [{"rates_mode": "none"}, {"disable_stats": True}, 401])
def test_a_broker_without_numbers_is_asked_less_often_and_looked_at_again_once_it_has_some(
    api: HttpApi, refusal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = api.answers["overview"]
    overview = api.answers["overview"] = Counted(refusal if isinstance(refusal, int) else usual | refusal)
    link = Link((asked(api), "a"))
    monkeypatch.setattr(upstream_looks, "SHORTEST", 0.05)

    async def live() -> None:
        made = looks(link)
        for _ in range(20):
            await made.look()
            await asyncio.sleep(0.02)
        assert link.seen == []
        assert 2 <= overview.questions <= 4
        overview.answer = usual
        await asyncio.sleep(1.0)
        await made.look()

    asyncio.run(live())
    assert link.seen == [QueueCounts(0, 0, 1)]


def test_brokers_of_one_authority_cost_one_tls_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority.create(tmp_path)
    own = authority.server()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(own.certfile, own.keyfile)
    made: list[Tls] = []

    async def counted(tls: Tls, *, where: str) -> ssl.SSLContext:
        made.append(tls)
        return await tls_context(tls, where=where)

    monkeypatch.setattr(transport, "tls_context", counted)
    with http_api(serving) as api:
        api.answers |= {f"queues/{vhost}": [{"name": "a", "messages": 1}] for vhost in "xyz"}
        url = http_url.parse(f"https://127.0.0.1:{api.port}?cacertfile={authority.cacertfile}")
        links = [Link((Asked((url,), vhost, "origin"), "a")) for vhost in "xyz"]

        async def live() -> None:
            watched = links[:1]
            made_once = UpstreamLooks(lambda: watched, Board(lambda: 0.0, "a"), every=0.0)
            await made_once.look()
            watched += links[1:]
            await made_once.look()

        asyncio.run(live())
    assert [bool(link.seen) for link in links] == [True, True, True]
    assert len(made) == 1


def test_one_upstream_that_answers_nonsense_delays_no_other(api: HttpApi) -> None:
    with http_api() as other:
        other.answers[QUEUES] = {"a": 1}
        links = [Link((asked(other, "bad"), "a")), Link((asked(api), "b"))]
        asyncio.run(looks(*links).look())
    assert [link.seen for link in links] == [[], [QueueCounts(1, 0, 1)]]


def test_after_an_address_that_stops_answering_the_next_one_is_first(
    api: HttpApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_looks, "PATIENCE", 0.5)
    monkeypatch.setattr(upstream_looks, "SHORTEST", 0.05)
    with http_api() as silent:
        silent.answers[QUEUES] = lambda: time.sleep(1.5)
        link = Link((Asked((http_url.parse(silent.url), http_url.parse(api.url)), "/", "origin"), "a"))

        async def live() -> None:
            made = looks(link)
            await made.look()
            await asyncio.sleep(0.2)
            await made.look()

        asyncio.run(live())
    assert link.seen == [QueueCounts(0, 0, 1)]
