from __future__ import annotations

from dataclasses import replace

import pytest

from agent.amqp.data.splice import Counts
from agent.core.addresses.uri import parse
from agent.core.links.lag import LagCritical
from agent.core.links.lifecycle import Blocked, Failed, LinkState, Phase, Stalled, Unwanted
from agent.core.links.read_limits import RateLimit
from agent.core.model import Exchange, ExchangeLink, Link, LinkSettings, ShovelLink
from agent.core.status.acknowledgements import acknowledged
from agent.core.text import rfc3339
from agent.errors import Failure, FailureKind, Side
from agent.status.board import Board
from agent.status.causes import facts, summary
from agent.status.entry import Gauges
from agent.status.metrics import exposition
from agent.status.native import native_link
from agent.status.views import history_view, link_view, overview, sample_view
from tests.unit.core.some_links import queue_link, shovel_link

LINK = ExchangeLink(
    id="1a2b3c4d",
    vhost="/",
    name="orders",
    upstream="origin",
    uris=(parse("amqp://u:s3ntinel@h:5672/%2f"),),
    remote_name="there",
    settings=LinkSettings(),
    policy="p",
    exchange=Exchange("orders", "topic"),
)
RUNNING = LinkState(phase=Phase.OPEN, started=True)
STANDBY = LinkState(started=True, standby="the plugin runs it")
BROKEN = LinkState(phase=Phase.WAITING, started=True, broken=Failed("connection refused"))


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def board() -> tuple[Board, Clock]:
    clock = Clock()
    made = Board(clock, "dc2-a")
    made.put(LINK, LinkState(), Counts(forwarded=3, dropped={"max_hops": 2}), lambda: Gauges(in_flight=7, bindings=2))
    return made, clock


def test_a_link_as_the_api_tells_it() -> None:
    made, _ = board()
    made.changed(LINK.id, RUNNING)
    view = link_view(made, made[LINK.id])
    assert (view["id"], view["kind"], view["exchange"], view["upstream_exchange"]) == (
        "1a2b3c4d", "exchange", "orders", "there",
    )  # fmt: skip
    assert (view["status"], view["error"], view["owner"]) == ("running", None, "dc2-a")
    assert (view["forwarded"], view["dropped"], view["in_flight"], view["bindings"]) == (3, 2, 7, 2)
    assert view["uri"] == "amqp://h:5672/%2f"
    assert view["since"] == "2027-01-15T08:00:00.000Z"


def test_a_shovel_shows_where_its_messages_come_from_and_go_to() -> None:
    made, _ = board()
    link = shovel_link()
    made.put(link, RUNNING, Counts(), Gauges)
    view = link_view(made, made[link.id])
    assert (view["source"], view["destination"]) == ("queue q", "each message's own exchange")
    assert view["destination_uri"] == link.shovel.destination_uris[0].safe
    assert "source" not in link_view(made, made[LINK.id])


def test_since_tells_when_the_status_changed_and_nothing_else() -> None:
    made, clock = board()
    made.changed(LINK.id, RUNNING)
    begun = made[LINK.id].since
    clock.now += 10
    made.changed(LINK.id, LinkState(phase=Phase.OPEN, started=True, attempt=3))
    assert made[LINK.id].since == begun
    made.changed(LINK.id, BROKEN)
    assert made[LINK.id].since == begun + 10
    assert made[LINK.id].reconnects == 1


def test_the_native_route_gives_the_native_names() -> None:
    made, _ = board()
    made.changed(LINK.id, BROKEN)
    view = native_link(made, made[LINK.id])
    assert view["status"] == "error"
    assert view["error"] == "connection refused"
    assert (view["type"], view["exchange"], view["upstream_exchange"]) == ("exchange", "orders", "there")
    assert view["timestamp"] == "2027-01-15 08:00:00"


def test_what_is_gone_is_told_no_more() -> None:
    made, _ = board()
    made.gone(LINK.id)
    made.changed(LINK.id, RUNNING)
    assert list(made) == []
    assert LINK.id not in made


def test_a_link_that_is_wanted_again_while_it_goes_is_counted_anew() -> None:
    made, _ = board()
    made.put(LINK, LinkState(), Counts(forwarded=1), lambda: Gauges(in_flight=5))
    assert [(entry.meter.forwarded, entry.gauges().in_flight) for entry in made] == [(1, 5)]


def test_why_it_had_to_begin_anew_is_counted_once_an_outage() -> None:
    made, _ = board()
    lost = Failed("downstream h: cut", Failure(FailureKind.LOST, Side.DOWNSTREAM))
    again = Failed("downstream h: connection refused", Failure(FailureKind.UNREACHABLE, Side.DOWNSTREAM))
    for broken in (lost, again, None, again):
        made.changed(LINK.id, replace(RUNNING, broken=broken))
    assert made[LINK.id].failures == {(Side.DOWNSTREAM, "lost"): 1, (Side.DOWNSTREAM, "unreachable"): 1}
    assert link_view(made, made[LINK.id])["reconnects"] == 2


def test_seconds_of_being_blocked_add_up_while_they_pass() -> None:
    wall, steady = Clock(), Clock()
    made = Board(wall, "dc2-a", monotonic=steady)
    made.put(LINK, LinkState(), Counts(), Gauges)
    blocked = replace(RUNNING, blocked=(Blocked(Side.DOWNSTREAM, "memory"),))
    for state in (blocked, RUNNING, blocked):
        made.changed(LINK.id, state)
        steady.now += 10
        wall.now -= 3600  # however often it is set
    entry = made[LINK.id]
    assert entry.blocked_seconds == 20
    made.changed(LINK.id, RUNNING)
    steady.now += 10
    assert entry.blocked_seconds == 20


def test_the_last_confirm_is_when_the_count_last_grew() -> None:
    clock, counts = Clock(), Counts()
    made = Board(clock, "dc2-a")
    made.put(LINK, RUNNING, counts, Gauges)
    made.moved(LINK.id)
    assert link_view(made, made[LINK.id])["last_confirm"] is None
    counts.forwarded += 1
    clock.now += 1
    made.moved(LINK.id)
    clock.now += 1
    made.moved(LINK.id)
    assert link_view(made, made[LINK.id])["last_confirm"] == "2027-01-15T08:00:01.000Z"


def test_nobody_here_owns_what_another_runs() -> None:
    made, _ = board()
    made.changed(LINK.id, LinkState(started=True, standby="the plugin runs it"))
    view = link_view(made, made[LINK.id])
    assert (view["status"], view["owner"], view["error"]) == ("standby", None, "the plugin runs it")


def test_what_a_link_went_through_ends_with_now() -> None:
    made, clock = board()
    made.changed(LINK.id, RUNNING)
    clock.now += 60
    story = history_view(made, made[LINK.id])
    assert [(each["status"], each["reason"]) for each in story["transitions"]] == [
        ("starting", "appeared"),
        ("running", "opened"),
    ]
    assert [(each["at"], each["forwarded"]) for each in story["samples"]] == [("2027-01-15T08:01:00.000Z", 3)]


def test_the_agent_itself() -> None:
    made, _ = board()
    made.problems, made.notes, made.cluster = ("agent.yaml:1:1: bad",), ("odd",), "rabbit@dc2"
    told = overview(made)
    assert (told["agent"], told["cluster"], told["reload_success"], told["reloaded"]) == (
        "dc2-a",
        "rabbit@dc2",
        False,
        None,
    )
    assert (told["problems"], told["notes"]) == (["agent.yaml:1:1: bad"], ["odd"])
    assert told["links"]["starting"] == 1
    assert sum(told["links"].values()) == 1


def test_a_link_that_is_removed_says_when_and_readers_get_all_of_it() -> None:
    """Its error counts down, which samples don't hold."""
    clock = Clock()
    made = Board(clock, "dc2-a")
    made.put(LINK, RUNNING, Counts(), lambda: Gauges(removal="removed in 5 s", backlog=4))
    made.changed(LINK.id, replace(RUNNING, phase=Phase.AWAITING_REMOVAL, unwanted=Unwanted(1.0)))
    view = link_view(made, made[LINK.id])
    assert (view["status"], view["error"], view["backlog"]) == ("removing", "removed in 5 s", 4)
    with made.feed() as feed:
        made.moved(LINK.id)
        assert feed.take().changed == (LINK.id,)


def test_an_unexpected_error_is_among_the_problems_and_keeps_no_definitions_out_of_force() -> None:
    board = Board(Clock(), "dc2-a")
    board.errors.report("follow bindings", ValueError("s3cret"))
    shown = overview(board)
    assert shown["reload_success"]
    [problem] = shown["problems"]
    assert "'follow bindings' (ValueError)" in problem
    assert "s3cret" not in problem


def test_readers_get_all_of_a_link_whose_note_is_another() -> None:
    made, _ = board()
    gauges = Gauges()
    made.put(LINK, RUNNING, Counts(), lambda: gauges)
    with made.feed() as feed:
        for note, is_changed in (("", False), ("idle", True), ("idle", False), ("", True)):
            gauges.note = note
            made.moved(LINK.id)
            news = feed.take()
            assert (news.changed, news.moved) == (((LINK.id,), ()) if is_changed else ((), (LINK.id,)))


async def test_causes_are_those_of_all_links_with_the_downstream_by_name() -> None:
    made, clock = board()
    made.cluster = "dc2-prod"
    made.changed(LINK.id, RUNNING)
    assert (await summary(made))["verdict"] == "1 link, 1 running"
    made[LINK.id].meter.forwarded += 1
    made.moved(LINK.id)
    low = Blocked(Side.DOWNSTREAM, "low on memory", FailureKind.MEMORY_ALARM)
    made.changed(LINK.id, replace(RUNNING, blocked=(low,)))
    clock.now += 240
    found = await summary(made)
    assert found["level"] == "down"
    assert found["verdict"] == "dc2-prod (downstream): memory alarm for 4 min, 1 of 1 link blocked"
    [cause] = found["causes"]
    assert (cause["links"], cause["were_flowing"], cause["waiting"]["is_exact"]) == ([LINK.id], 1, False)


async def test_a_link_that_moved_a_message_days_ago_is_no_incident() -> None:
    """And one that is tried again and again is as much of one as when it failed first."""
    made, clock = board()
    made.changed(LINK.id, RUNNING)
    made[LINK.id].meter.forwarded += 1
    made.moved(LINK.id)
    clock.now += 1_800
    for _ in range(200):
        made.changed(LINK.id, BROKEN)
        clock.now += 30
        made.changed(LINK.id, RUNNING)
        clock.now += 1
    made.changed(LINK.id, BROKEN)
    assert (await summary(made))["causes"][0]["were_flowing"] == 1
    made.changed(LINK.id, RUNNING)
    clock.now += 3 * 86_400
    made.changed(LINK.id, BROKEN)
    assert (await summary(made))["causes"][0]["were_flowing"] == 0


def moving(link: Link = LINK) -> tuple[Board, Clock]:
    """A link that forwards 18 messages a second."""
    clock = Clock()
    made = Board(clock, "dc2-a")
    made.put(link, LinkState(), Counts(), Gauges)
    made.changed(link.id, RUNNING)
    for _ in range(20):
        clock.now += 1
        made[link.id].meter.forwarded += 18
        made.moved(link.id)
        made.tick()
    return made, clock


def test_the_rate_is_that_of_the_last_seconds() -> None:
    made, clock = moving()
    assert link_view(made, made[LINK.id])["rate"] == sample_view(made, made[LINK.id])["rate"] == 18
    clock.now += 60
    assert link_view(made, made[LINK.id])["rate"] == 0


@pytest.mark.parametrize(
    ("state", "rate"),
    [
        (RUNNING, 18),
        (replace(RUNNING, paused=True), 0),
        (BROKEN, 0),
        (replace(RUNNING, blocked=(Blocked(Side.DOWNSTREAM),)), 0),
        (replace(RUNNING, blocked=(Blocked(Side.UPSTREAM),)), 18),  # it consumes on
    ],
)
def test_a_link_that_does_not_run_has_no_rate(state: LinkState, rate: int) -> None:
    made, _ = moving()
    made.changed(LINK.id, state)
    assert link_view(made, made[LINK.id])["rate"] == rate


def test_readers_learn_that_a_rate_falls_though_nothing_moves() -> None:
    made, clock = moving()
    with made.feed() as feed:
        rates = []
        for _ in range(15):
            clock.now += 1
            made.tick()
            rates += [sample_view(made, made[each])["rate"] for each in feed.take().moved]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == 0
    assert len(rates) < 15


def test_what_waited_is_remembered_when_it_cannot_be_known_any_more() -> None:
    made, clock = board()
    gauges = Gauges(backlog=849)
    entry = made[LINK.id]
    entry.gauges = lambda: gauges
    made.moved(LINK.id)
    assert (link_view(made, entry)["backlog"], link_view(made, entry)["backlog_last"]) == (849, 849)
    begun = clock.now
    gauges.backlog = None
    clock.now += 240
    view = link_view(made, entry)
    assert (view["backlog"], view["backlog_last"], view["backlog_last_at"]) == (None, 849, rfc3339(begun))
    assert (facts(made, entry, 0.0).waiting, facts(made, entry, 0.0).waited_last) == (None, 849)


async def test_a_link_on_which_nothing_moves_falls_behind_by_the_clock_and_is_a_cause() -> None:
    clock = Clock()
    made = Board(clock, "dc2-a")
    link = replace(LINK, settings=LinkSettings(lag_critical=LagCritical(seconds=300)))
    waiting = [0]
    made.put(link, RUNNING, Counts(), lambda: Gauges(backlog=waiting[0]))
    assert link_view(made, made[link.id])["behind_seconds"] == 0
    waiting[0] = 5
    clock.now += 299
    assert link_view(made, made[link.id])["critical_since"] is None
    clock.now += 1
    shown = link_view(made, made[link.id])
    assert (shown["behind_seconds"], shown["critical_since"]) == (300, rfc3339(clock.now))
    assert shown["lag_critical"] == {"seconds": 300, "messages": None}
    clock.now += 10
    assert facts(made, made[link.id], clock.now).behind_since == clock.now - 10
    told = link_view(made, made[link.id])["error"]
    assert told == "5 min 10 s behind (limit 5 min): out 0/s"
    assert (sample_view(made, made[link.id])["error"], (await summary(made))["causes"][0]["error"]) == (told, told)
    waiting[0] = 0
    assert facts(made, made[link.id], clock.now).behind_since is None


@pytest.mark.parametrize(
    ("published", "prefetch_count", "unsettled", "told", "advised"),
    [
        (
            200,
            10,
            10,
            "6 min 43 s behind (limit 30 s): in 200/s, out 47/s, all 10 of its prefetch unconfirmed",
            "Raise",
        ),
        (
            200,
            None,
            10,
            "6 min 43 s behind (limit 30 s): in 200/s, out 47/s, all 10 of its prefetch unconfirmed",
            "More",
        ),
        (200, 10, 9, "6 min 43 s behind (limit 30 s): in 200/s, out 47/s", "More is published"),
        (7, 10, 10, "2 min 32 s behind (limit 30 s): catching up at 40/s, about 2 min left", "Wait"),
    ],
)
async def test_the_reason_of_a_lag_is_what_the_samples_and_the_gauges_show(
    published: int, prefetch_count: int | None, unsettled: int, told: str, advised: str
) -> None:
    clock, counts, backlog = Clock(), Counts(), [9_600]
    made = Board(clock, "dc2-a")
    settings = LinkSettings(lag_critical=LagCritical(seconds=30), prefetch_count=prefetch_count)
    made.put(
        replace(LINK, settings=settings),
        RUNNING,
        counts,
        lambda: Gauges(backlog=backlog[0], unsettled=unsettled, prefetch=10),
    )
    for _ in range(61):
        made.moved(LINK.id)
        clock.now += 1
        counts.forwarded += 47
        backlog[0] += published - 47
    [cause] = (await summary(made))["causes"]
    assert (cause["error"], link_view(made, made[LINK.id])["error"]) == (told, told)
    assert cause["advice"].startswith(advised)


def test_a_link_that_something_else_serves_is_not_behind_here_and_begins_anew_when_it_comes_back() -> None:
    clock = Clock()
    made = Board(clock, "dc2-a")
    link = replace(LINK, settings=LinkSettings(lag_critical=LagCritical(seconds=300)))
    waiting: list[int | None] = [5]
    made.put(link, RUNNING, Counts(), lambda: Gauges(backlog=waiting[0]))
    entry = made[link.id]
    assert link_view(made, entry)["critical_since"] is None
    waiting[0] = None
    entry.change(STANDBY, clock.now)
    clock.now += 3600
    shown = link_view(made, entry)
    assert (shown["behind_seconds"], shown["critical_since"], entry.lag_is_critical) == (None, None, False)
    clock.now += 3600
    entry.change(RUNNING, clock.now)
    assert link_view(made, entry)["critical_since"] is None, "what waited before is unknown"
    waiting[0] = 1
    clock.now += 299
    assert link_view(made, entry)["critical_since"] is None
    clock.now += 1
    assert link_view(made, entry)["critical_since"] is not None


async def test_a_limited_link_says_so_and_is_no_trouble() -> None:
    clock = Clock()
    made = Board(clock, "dc2-a")
    link = replace(LINK, settings=LinkSettings(rate_limit=RateLimit(messages=5)))
    gauges = Gauges(backlog=10**6, note="a note")
    made.put(link, RUNNING, Counts(), lambda: gauges)
    entry = made[link.id]
    shown = link_view(made, entry)
    assert (shown["limited"], shown["rate_limit"], shown["error"]) == (False, {"messages": 5, "bytes": None}, "a note")
    assert entry.has_new_note()
    gauges.limited_by = "5 messages/s"
    assert (entry.has_new_note(), entry.has_new_note()) == (True, False)
    shown = link_view(made, entry)
    assert (shown["status"], shown["limited"]) == ("running", True)
    assert shown["error"] == "a note; held to its rate-limit of 5 messages/s"
    assert sample_view(made, entry)["limited"] is True
    found = await summary(made)
    assert (found["level"], found["causes"]) == ("fine", [])
    made.put(
        replace(link, settings=replace(link.settings, lag_critical=LagCritical(messages=5))),
        RUNNING,
        Counts(),
        lambda: gauges,
    )
    shown = link_view(made, made[link.id])
    assert (
        shown["error"] == "1,000,000 messages wait (limit 5), held to its rate-limit of 5 messages/s: out 0/s; a note"
    )
    [cause] = (await summary(made))["causes"]
    assert cause["advice"].startswith("Raise `rate-limit`")


def test_a_link_without_lag_critical_is_never_behind() -> None:
    made, clock = board()
    made.put(LINK, RUNNING, Counts(), lambda: Gauges(backlog=10**6))
    clock.now += 10**6
    shown = link_view(made, made[LINK.id])
    assert (shown["lag_critical"], shown["behind_seconds"], shown["critical_since"]) == (None, None, None)


def failing(error: str, side: Side, kind: FailureKind = FailureKind.UNREACHABLE) -> LinkState:
    return LinkState(phase=Phase.WAITING, started=True, broken=Failed(f"{side} {error}", Failure(kind, side)))


async def causes_told(made: Board) -> list[tuple[str, str, str, int]]:
    found = (await summary(made))["causes"]
    return [(each["side"], each["broker"], each["trouble"], len(each["links"])) for each in found]


async def test_a_link_in_backoff_that_fails_otherwise_has_that_reason_and_since_then() -> None:
    made, clock = board()
    made.cluster = "dc2"
    made.changed(LINK.id, failing("x", Side.UPSTREAM, FailureKind.OTHER))
    clock.now += 240
    made.changed(LINK.id, failing("no answer", Side.DOWNSTREAM))
    clock.now += 15
    assert link_view(made, made[LINK.id])["reason"] == "downstream_unreachable"
    told = await summary(made)
    assert await causes_told(made) == [("downstream", "dc2", "unreachable", 1)]
    assert told["verdict"] == "dc2 (downstream): unreachable for 15 s, 1 of 1 link down"
    made.changed(LINK.id, failing("no answer", Side.DOWNSTREAM, FailureKind.HEARTBEATS_MISSED))
    assert await causes_told(made) == [("downstream", "dc2", "not answering", 1)]


async def test_a_link_that_never_connected_has_the_cluster_that_others_know_at_its_address() -> None:
    made, clock = board()
    other = replace(LINK, id="00000009", uris=(parse("amqp://other:secret@h:5672/v"),))
    gauges = Gauges(upstream_cluster="dc1", uri=LINK.uris[0], met=((LINK.uris[0], "dc1"),))
    made.put(LINK, LinkState(), Counts(), lambda: gauges)
    made.put(other, LinkState(), Counts(), Gauges)
    made.changed(other.id, failing("no answer", Side.UPSTREAM))
    assert await causes_told(made) == [("upstream", "h:5672", "unreachable", 1)]
    made.changed(LINK.id, RUNNING)
    made.changed(LINK.id, failing("no answer", Side.UPSTREAM))
    clock.now += 1
    assert await causes_told(made) == [("upstream", "dc1", "unreachable", 2)]


def shovel_between(source: str, destination: str) -> ShovelLink:
    link = shovel_link()
    shovel = replace(link.shovel, source_uris=(parse(source),), destination_uris=(parse(destination),))
    return replace(link, uris=(parse(source),), shovel=shovel)


@pytest.mark.parametrize(
    ("source", "destination", "side", "expected"),
    [
        ("amqp://own:1", "amqp://far:2", Side.DOWNSTREAM, ("destination", "far:2")),
        ("amqp://", "amqp://far:2", Side.UPSTREAM, ("downstream", "dc2")),
        ("amqp://own:1", "amqp://far:2", Side.UPSTREAM, ("downstream", "dc2")),
        ("amqp://far:2", "amqp://own:1/v", Side.DOWNSTREAM, ("downstream", "dc2")),
        ("amqp://far:2", "amqp://by.another.name", Side.DOWNSTREAM, ("downstream", "dc2")),
        ("amqp://far:2", "amqp://known", Side.DOWNSTREAM, ("destination", "dc1")),
        ("amqp://known", "amqp://own:1", Side.UPSTREAM, ("upstream", "dc1")),
    ],
)
async def test_a_shovel_blames_the_broker_at_the_end_that_fails(
    source: str, destination: str, side: Side, expected: tuple[str, str]
) -> None:
    made = Board(Clock(), "dc2-a", cluster="dc2")
    made.clusters.downstream = frozenset({("own", 1)})
    made.clusters.learn(parse("amqp://by.another.name"), "dc2")
    made.clusters.learn(parse("amqp://known"), "dc1")
    link = shovel_between(source, destination)
    made.put(link, LinkState(), Counts(), Gauges)
    made.changed(link.id, failing("no answer", side))
    assert [told[:2] for told in await causes_told(made)] == [expected]


def test_a_link_shows_the_clusters_at_both_ends_once_any_link_has_met_them() -> None:
    """Of a shovel that never connected, too; links that are shown by an address are sent again under the name."""
    made = Board(Clock(), "dc2-a", cluster="dc2")
    made.clusters.downstream = frozenset({("own", 1)})
    between, back = (
        replace(shovel_between(source, destination), id=f"0000000{at}")
        for at, (source, destination) in enumerate([("amqp://far:2", "amqp://third"), ("amqp://own:1", "amqp://third")])
    )
    met = Gauges(met=((parse("amqp://far:2"), "dc1"), (parse("amqp://third"), "dc3")))

    def ends(link: Link) -> tuple[str | None, str | None]:
        view = link_view(made, made[link.id])
        return view["upstream_cluster"], view["destination_cluster"]

    for link in (LINK, between, back):
        made.put(link, LinkState(), Counts(), lambda link=link: met if link is between else Gauges())  # type: ignore[misc]
    assert [ends(link) for link in (LINK, between, back)] == [(None, "dc2"), (None, None), ("dc2", None)]
    with made.feed() as feed:
        made.changed(between.id, RUNNING)
        assert set(feed.take().changed) == {between.id, back.id}
        made.changed(back.id, RUNNING)
        assert set(feed.take().changed) == {back.id}
    assert [ends(link) for link in (LINK, between, back)] == [(None, "dc2"), ("dc1", "dc3"), ("dc2", "dc3")]


async def test_a_link_that_is_cut_again_and_again_stays_a_cause() -> None:
    made, clock = board()
    for cuts in range(4):
        made.changed(LINK.id, RUNNING)
        assert (await summary(made))["level"] == ("fine" if cuts < 3 else "degraded")
        clock.now += 3
        made.changed(LINK.id, failing("ended", Side.UPSTREAM, FailureKind.LOST))
    made.changed(LINK.id, RUNNING)
    clock.now += 59
    told = await summary(made)
    assert told["verdict"] == ("h:5672 (upstream): connection lost again and again for 1 min, 1 of 1 link interrupted")
    assert told["causes"][0]["error"] == "upstream ended"
    clock.now += 2
    assert (await summary(made))["level"] == "fine"


async def test_a_link_whose_exchange_is_deleted_while_messages_flow_is_a_cause_for_an_hour() -> None:
    clock = Clock()
    made, counts = Board(clock, "dc2-a", cluster="dc2"), Counts()
    made.put(LINK, RUNNING, counts, Gauges)
    made.object_deleted(LINK.id)
    assert made.deleted() == []  # nothing had flowed
    counts.forwarded = 3
    made.object_deleted(LINK.id)
    made.gone(LINK.id)
    told = await summary(made)
    [cause] = told["causes"]
    assert (told["level"], cause["side"], cause["trouble"]) == ("degraded", "downstream", "exchange deleted")
    assert cause["names"] == [f"{LINK.vhost}/{LINK.name}"]
    metrics = b"".join(await exposition(made)).decode()
    assert (
        f'stuck_links{{side="downstream",trouble="exchange deleted",vhost="{LINK.vhost}",upstream="{LINK.upstream}"}} 1'
    ) in metrics
    assert f"`federation-agent forget {LINK.id}`" in cause["advice"]
    clock.now += 3_600
    assert (await summary(made))["level"] == "fine"
    clock.now -= 3_000
    assert (await summary(made))["level"] == "degraded"
    assert [made.forget(LINK.id), made.forget(LINK.id)] == [True, False]
    assert (await summary(made))["level"] == "fine"


@pytest.mark.parametrize(
    ("gauges", "confirmed_ago", "lasts"),
    [
        (Gauges(oldest_in_flight=32.0), None, 32),
        (Gauges(oldest_refused=32.0), None, 32),
        (Gauges(oldest_refused=7_200.0), 40, 40),  # others got through until then
        (Gauges(oldest_in_flight=32.0, oldest_refused=50.0), 60, 50),
        (Gauges(), None, 2),
    ],
)
async def test_nothing_is_confirmed_since_the_last_confirm_or_since_something_waits(
    gauges: Gauges, confirmed_ago: int | None, lasts: int
) -> None:
    """Not since that made the link stalled; what a full queue refuses isn't in flight."""
    clock, counts = Clock(), Counts()
    made = Board(clock, "dc2-a")
    made.put(LINK, RUNNING, counts, lambda: gauges)
    if confirmed_ago is not None:
        counts.forwarded += 1
        made.moved(LINK.id)
    clock.now += (confirmed_ago or 7_200) - 2
    made.changed(LINK.id, replace(RUNNING, stalled=Stalled("waits")))
    clock.now += 2
    [cause] = (await summary(made))["causes"]
    assert (cause["trouble"], cause["since"]) == ("nothing confirmed", rfc3339(clock.now - lasts))
    assert "`rabbitmqctl list_queues -p / name messages policy arguments`" in cause["advice"]


async def test_queues_that_a_shovel_fills_are_in_the_vhost_of_its_destination() -> None:
    made, link = Board(Clock(), "dc2-a"), shovel_between("amqp://own:1/from", "amqp://far:2/two%20words")
    made.put(link, replace(RUNNING, stalled=Stalled("waits")), Counts(), Gauges)
    [cause] = (await summary(made))["causes"]
    assert "`rabbitmqctl list_queues -p 'two words' name " in cause["advice"]


@pytest.mark.parametrize("link", [LINK, queue_link()])
async def test_what_is_deleted_says_how_much_it_carried_until_it_is_declared_again(link: Link) -> None:
    made, _ = moving(link)
    made.object_deleted(link.id)
    made.gone(link.id)
    [cause] = (await summary(made))["causes"]
    assert (cause["side"], cause["trouble"]) == ("downstream", f"{link.kind} deleted")
    assert cause["error"] == (
        f"{link.kind} {link.name!r} in vhost '/' was deleted: its link from 'origin' ends, "
        "and it carried 18.0 messages a second"
    )
    assert cause["advice"].startswith(f"Declare the {link.kind} again on ")
    made.put(link, RUNNING, Counts(), Gauges)
    assert (await summary(made))["causes"] == []


def acknowledge(made: Board, *, until: float | None = None) -> None:
    known = acknowledged("upstream", "unreachable", by="ann@ops", at=made.clock(), reason="known", until=until)
    made.acknowledge({LINK.id: known, "ffffffff": known})


async def is_known(made: Board) -> bool:
    [cause] = (await summary(made))["causes"]
    return cause["acknowledged"] is not None


REFUSED = replace(
    BROKEN, broken=Failed("upstream h: connection refused", Failure(FailureKind.UNREACHABLE, Side.UPSTREAM))
)


async def test_an_acknowledgement_ends_with_its_time() -> None:
    made, clock = board()
    made.changed(LINK.id, REFUSED)
    assert not await is_known(made)
    acknowledge(made, until=clock.now + 7_200)
    [cause] = (await summary(made))["causes"]
    assert cause["acknowledged"] == {
        "by": "ann@ops", "at": rfc3339(clock.now), "reason": "known", "until": rfc3339(clock.now + 7_200),
        "text": "acknowledged by ann@ops at 2027-01-15 08:00 UTC: known, until 2027-01-15 10:00 UTC",
    }  # fmt: skip
    clock.now += 7_199
    assert await is_known(made)
    clock.now += 1
    assert not await is_known(made)
    acknowledge(made)
    clock.now += 90 * 86_400
    assert await is_known(made), "without a time only the end of the trouble ends it"
    made.acknowledge({LINK.id: None})
    assert not await is_known(made)


@pytest.mark.parametrize(("ran", "lasts"), [(59, True), (60, False)])
async def test_an_acknowledgement_ends_once_the_link_has_run_for_a_minute(ran: int, *, lasts: bool) -> None:
    """Whether or not somebody looks meanwhile; a link that runs for moments comes up again and again."""
    made, clock = board()
    made.changed(LINK.id, REFUSED)
    acknowledge(made)
    made.changed(LINK.id, RUNNING)
    clock.now += ran
    made.changed(LINK.id, REFUSED)
    assert await is_known(made) is lasts


async def test_an_acknowledgement_is_not_that_of_another_trouble() -> None:
    made, _ = board()
    made.changed(LINK.id, REFUSED)
    acknowledge(made)
    made.changed(LINK.id, failing("h: login refused", Side.UPSTREAM, FailureKind.LOGIN))
    assert not await is_known(made)
    made.changed(LINK.id, REFUSED)
    assert await is_known(made)
    made.changed(LINK.id, STANDBY)
    made.changed(LINK.id, REFUSED)
    assert await is_known(made), "its own consumer of a moment ago may have been in its way"
    made.changed(LINK.id, failing("h: silent", Side.UPSTREAM, FailureKind.HEARTBEATS_MISSED))
    assert await is_known(made), "a broker that restarts is unreachable and silent in turn"


async def test_an_acknowledged_lag_that_is_over_for_a_moment_stays_known() -> None:
    made, clock = board()
    entry = made[LINK.id]
    made.changed(LINK.id, RUNNING)
    clock.now += 90 * 86_400
    acknowledge(made)
    entry.critical_since = clock.now
    assert made.acknowledged(LINK.id)
    entry.critical_since, entry.in_time_since = None, clock.now
    assert made.acknowledged(LINK.id)
    clock.now += 60
    assert made.acknowledged(LINK.id) is None


async def test_a_deleted_exchange_can_be_acknowledged_too() -> None:
    clock = Clock()
    made, counts = Board(clock, "dc2-a", cluster="dc2"), Counts()
    made.put(LINK, RUNNING, counts, Gauges)
    counts.forwarded = 3
    made.object_deleted(LINK.id)
    made.gone(LINK.id)
    known = acknowledged("downstream", "exchange deleted", by="ann", at=clock.now, reason="", until=clock.now + 60)
    made.acknowledge({LINK.id: known})
    assert await is_known(made)
    clock.now += 60
    assert not await is_known(made)
