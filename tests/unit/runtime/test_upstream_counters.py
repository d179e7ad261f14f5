from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from agent.core.addresses import uri
from agent.core.links.upstream_account import QueueCounts
from agent.runtime.upstream_counters import LONGEST, PATIENCE, SHORTEST, CountedVhost, UpstreamCounters, queue_counts
from agent.status.board import Board
from tests.lab.certificates import Authority
from tests.unit.runtime.http_api import HttpApi, http_api

QUEUES = "queues/%2F"
EVERY = SHORTEST


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
    upstream_queue: tuple[CountedVhost, str] | None
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


def asked(api: HttpApi, upstream: str = "origin") -> CountedVhost:
    return CountedVhost((uri.parse_http(api.url),), "/", upstream)


class Clock:
    """It stands still while a broker is asked."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def looks(*links: Link, clock: Clock | None = None, patience: float = PATIENCE) -> UpstreamCounters:
    return UpstreamCounters(
        lambda: links, Board(lambda: 0.0, "a"), every=EVERY, clock=clock or Clock(), patience=patience
    )


async def look(*links: Link) -> None:
    await looks(*links).look()


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
    asyncio.run(look(*links))
    assert [link.seen for link in links] == [[QueueCounts(0, 0, 1)], [QueueCounts(2, 0, 1)], [None], []]
    assert queues.questions == 1


def test_an_answer_for_what_has_changed_meanwhile_counts_nowhere(api: HttpApi) -> None:
    link = Link((asked(api), "a"))
    answer = api.answers[QUEUES]

    def other_queue() -> Any:
        link.upstream_queue = (asked(api), "b")
        return answer

    api.answers[QUEUES] = other_queue
    asyncio.run(look(link))
    assert link.seen == []


@pytest.mark.parametrize("refusal", [{"rates_mode": "none"}, {"disable_stats": True}, 401])
def test_a_broker_without_numbers_is_asked_less_often_and_looked_at_again_once_it_has_some(
    api: HttpApi, refusal: Any
) -> None:
    usual = api.answers["overview"]
    overview = api.answers["overview"] = Counted(refusal if isinstance(refusal, int) else usual | refusal)
    link, clock = Link((asked(api), "a")), Clock()

    async def live() -> None:
        made, asked_at = looks(link, clock=clock), list[float]()
        for _ in range(20):
            before = overview.questions
            await made.look()
            asked_at += [clock.now] * (overview.questions - before)
            clock.now += EVERY
        assert link.seen == []
        assert [later - sooner for sooner, later in pairwise(asked_at)] == [2 * EVERY, 4 * EVERY, 8 * EVERY]
        overview.answer = usual
        clock.now += LONGEST
        await made.look()

    asyncio.run(live())
    assert link.seen == [QueueCounts(0, 0, 1)]


@pytest.mark.parametrize(("takes", "pause"), [(0.1, EVERY), (EVERY / 15, 2 * EVERY), (EVERY / 6, 4 * EVERY)])
def test_no_broker_is_busy_with_answers_for_more_than_a_twentieth_of_the_time(
    api: HttpApi, takes: float, pause: float
) -> None:
    clock, answer, answered_at = Clock(), api.answers[QUEUES], list[float]()

    def slowly() -> Any:
        clock.now += takes
        answered_at.append(clock.now)
        return answer

    api.answers[QUEUES] = slowly

    async def live() -> None:
        made = looks(Link((asked(api), "a")), clock=clock)
        for _ in range(12):
            await made.look()
            clock.now += EVERY

    asyncio.run(live())
    assert pause >= 20 * takes
    pauses = [later - takes - sooner for sooner, later in pairwise(answered_at)]
    assert pauses == [pytest.approx(pause)] * len(pauses) and len(pauses) > 1


def test_brokers_of_one_authority_cost_one_tls_context(tmp_path: Path) -> None:
    """Its file is read once, for the first."""
    authority = Authority.create(tmp_path)
    own = authority.server()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(own.certfile, own.keyfile)
    with http_api(serving) as api:
        api.answers |= {f"queues/{vhost}": [{"name": "a", "messages": 1}] for vhost in "xyz"}
        url = uri.parse_http(f"https://127.0.0.1:{api.port}?cacertfile={authority.cacertfile}")
        links = [Link((CountedVhost((url,), vhost, "origin"), "a")) for vhost in "xyz"]

        async def live() -> None:
            watched = links[:1]
            made = UpstreamCounters(lambda: watched, Board(lambda: 0.0, "a"), every=EVERY)
            await made.look()
            await asyncio.to_thread(Path(authority.cacertfile).unlink)
            watched += links[1:]
            await made.look()

        asyncio.run(live())
    assert [bool(link.seen) for link in links] == [True, True, True]


def test_one_upstream_that_answers_nonsense_delays_no_other(api: HttpApi) -> None:
    with http_api() as other:
        other.answers[QUEUES] = {"a": 1}
        links = [Link((asked(other, "bad"), "a")), Link((asked(api), "b"))]
        asyncio.run(look(*links))
    assert [link.seen for link in links] == [[], [QueueCounts(1, 0, 1)]]


def test_after_an_address_without_numbers_the_next_one_is_first(api: HttpApi) -> None:
    """It would be the same with one that takes all the time that there is."""
    with http_api() as other:
        other.answers["overview"] |= {"rates_mode": "none"}
        link, clock = (
            Link((CountedVhost((uri.parse_http(other.url), uri.parse_http(api.url)), "/", "origin"), "a")),
            Clock(),
        )

        async def live() -> None:
            made = looks(link, clock=clock)
            await made.look()
            assert link.seen == []
            clock.now += LONGEST
            await made.look()

        asyncio.run(live())
    assert link.seen == [QueueCounts(0, 0, 1)]


def test_an_address_that_stops_answering_is_given_up(api: HttpApi) -> None:
    is_over = threading.Event()
    api.answers[QUEUES] = is_over.wait
    link = Link((asked(api), "a"))

    async def live() -> None:
        with capture_logs() as logs:
            await looks(link, patience=0.05).look()
        assert "no answer within 0.05 s" in logs[0]["error"]

    asyncio.run(live())
    is_over.set()
    assert link.seen == []
