"""Causes of trouble: grouped, ranked, and in words. The first scene is one that misled operators."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from agent.core.links.lag import NO_LAG, LagDescription
from agent.core.links.lifecycle import Level, Status
from agent.core.status.acknowledgements import Acknowledgement, acknowledged
from agent.core.status.advice import advice
from agent.core.status.causes import LinkFacts, advice_for, causes_of, level_of, verdict, waiting_of
from agent.core.status.failure_kinds import cause_of
from agent.errors import Failure, FailureKind, Side
from agent.network import explain

NOW = 1_000_000.0
ALARM = "downstream blocked: low on memory"
MEMORY = Failure(FailureKind.MEMORY_ALARM, side=Side.DOWNSTREAM)
STALLED = Failure(FailureKind.NO_CONFIRMS, side=Side.DOWNSTREAM)
LOST = Failure(FailureKind.LOST, side=Side.UPSTREAM)
UNREACHABLE = Failure(FailureKind.UNREACHABLE, side=Side.UPSTREAM)
INVALID = Failure(FailureKind.INVALID, side=Side.UPSTREAM, is_permanent=True)
NO_VHOST = replace(INVALID, kind=FailureKind.NO_VHOST, object_type="vhost")
MOVE = (
    "To take what is in one elsewhere: `federation-agent move --from URI --queue QUEUE --to-queue OTHER`; with "
    "`--redrive` instead of `--to-queue` dead letters go back to where they died."
)


def link(  # the defaults are a link that an alarm stopped
    number: int,
    status: Status = Status.BLOCKED,
    failure: Failure | None = MEMORY,
    error: str = ALARM,
    *,
    upstream: str = "dc1",
    ago: float = 250.0,
    flowed: float | None = 5.0,  # seconds before
    waiting: int | None = 0,
) -> LinkFacts:
    last = None if flowed is None else NOW - ago - flowed
    return LinkFacts(f"{number:08x}", status, failure, error, upstream, NOW - ago, last_confirm=last, waiting=waiting)


def denied(on: str, object_type: str = "queue", permission: str = "configure", *, user: str = "fed") -> Failure:
    about = {"user": user, "vhost": "v", "object": on, "object_type": object_type, "permission": permission}
    return Failure(FailureKind.PERMISSION, side=Side.UPSTREAM, is_permanent=True, **about)


def refused(number: int, *, queue: str = "q", upstream: str = "dc3") -> LinkFacts:
    found = link(number, Status.INVALID, denied(queue), f"refused for {queue}", upstream=upstream, ago=90_000)
    return replace(found, last_confirm=None, waiting=None)


def incident() -> list[LinkFacts]:
    """Six live links blocked by an alarm, four old misconfigurations, three links that run."""
    blocked = [link(number, waiting=100 + number, upstream=f"dc{number % 2}") for number in range(6)]
    old = [refused(10 + number, upstream=f"old{number}") for number in range(4)]
    return [*old, *blocked, *(link(20 + number, Status.RUNNING, None, "") for number in range(3))]


def test_the_incident_comes_before_old_mistakes() -> None:
    links = incident()
    causes = causes_of(links, downstream="dc2-prod")
    assert [(cause.trouble, len(cause.links)) for cause in causes] == [
        (FailureKind.MEMORY_ALARM, 6),
        *[(FailureKind.PERMISSION, 1)] * 4,
    ]
    assert verdict(causes, links, now=NOW) == (
        "dc2-prod (downstream): memory alarm for 4 min, 6 of 13 links blocked, 615 messages wait upstream; "
        "4 more causes"
    )


def test_many_links_refused_for_one_missing_permission_are_one_cause() -> None:
    [cause] = causes_of([refused(number, queue=f"q{number}") for number in range(201)], downstream="dc2")
    assert (len(cause.links), cause.broker, cause.side) == (201, "dc3", "upstream")
    assert "user 'fed' needs configure on queue 'q0', configure on queue 'q1', configure on queue 'q2'" in cause.advice
    assert " and 198 more objects in vhost 'v'" in cause.advice
    assert "`rabbitmqctl set_permissions -p v fed '^(federation|q)' '.*' '.*'`" in cause.advice


@pytest.mark.parametrize(
    ("queues", "pattern"),
    [
        (["b.c", "a"], r"'^(federation|a$|b\.c$)'"),
        ([f"queue.{number}" for number in range(300)], r"'^(federation|queue\.)'"),
        ([f"{number}" for number in range(300)], "'.*'"),
    ],
)
def test_one_line_grants_what_all_links_of_a_cause_lack(queues: list[str], pattern: str) -> None:
    [cause] = causes_of([refused(number, queue=queue) for number, queue in enumerate(queues)], downstream="d")
    assert f"`rabbitmqctl set_permissions -p v fed {pattern} '.*' '.*'`" in cause.advice


def test_topic_permissions_are_set_exchange_by_exchange() -> None:
    def denied_topic(number: int, exchange: str) -> LinkFacts:
        return link(number, Status.INVALID, denied(exchange, "topic", "read", user="u"), f"topic k{number}")

    links = [*(denied_topic(number, "same") for number in range(3)), *(denied_topic(9 + n, f"x{n}") for n in range(4))]
    [cause] = causes_of(links, downstream="d")
    assert cause.advice.count("rabbitmqctl set_topic_permissions -p v u ") == 3
    assert ", the same for 2 more exchanges, or " in cause.advice


def test_how_long_ago_messages_flowed_is_counted_from_when_the_trouble_began() -> None:
    """A link that is down changes between two statuses, so that since the last change little may have flowed."""
    began = NOW - 20_000
    down = replace(link(1, Status.BACKOFF, ago=5), last_confirm=began - 60, ran_until=began)
    assert down.was_flowing
    assert not replace(down, ran_until=None).was_flowing
    assert not replace(down, last_confirm=began - 7_200).was_flowing


def test_commands_in_advice_can_be_pasted() -> None:
    """Each is whole: RabbitMQ would take a placeholder for a pattern, and the user would lose its permissions."""
    forgotten = [replace(link(number, Status.PAUSED, None, "paused"), is_forgotten=True) for number in (1, 2)]
    links = [refused(3), link(4, Status.INVALID, replace(NO_VHOST, vhost="no pe"), "no such vhost"), *forgotten]
    commands = {each.trouble: each.advice.split("`")[1] for each in causes_of(links, downstream="d")}
    assert commands == {
        FailureKind.PERMISSION: "rabbitmqctl set_permissions -p v fed '^(federation|q$)' '.*' '.*'",
        FailureKind.NO_VHOST: "rabbitmqctl add_vhost 'no pe'",
        FailureKind.PAUSED: "federation-agent resume 00000001 00000002",
    }
    many = [replace(forgotten[0], id=f"{number:08x}") for number in range(1_000)]
    assert "`federation-agent links --status paused`" in causes_of(many, downstream="d")[0].advice


def test_another_user_is_another_cause() -> None:
    other = denied("q", permission="read", user="other")
    found = causes_of([refused(1), link(2, Status.INVALID, other, "no", upstream="dc3")], downstream="d")
    assert len(found) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([link(1, waiting=0)], [link(2, failure=LOST, flowed=None, upstream="u")] * 3),
        ([link(1, flowed=3_000)], [link(2, flowed=86_400, upstream="u", waiting=9)] * 3),
        ([link(1, Status.STALLED, STALLED, "none", flowed=None)], [link(2, flowed=None, upstream="u")] * 3),
        ([link(1), link(2)], [link(3, Status.BACKOFF, LOST, "lost", waiting=900)]),
        ([link(1, waiting=2)], [link(3, Status.BACKOFF, LOST, "lost", waiting=1)]),
        ([link(1, ago=10)], [link(3, Status.BACKOFF, LOST, "lost", ago=20)]),
    ],
    ids=["were flowing", "flowed lately", "connected", "more links", "more messages", "more recent"],
)
def test_what_comes_first(first: list[LinkFacts], second: list[LinkFacts]) -> None:
    other = {"status": Status.BACKOFF, "failure": LOST, "error": "lost", "upstream": "u"}
    second = [replace(each, id=f"{9 + at:08x}", **other) for at, each in enumerate(second)]  # type: ignore[arg-type]
    found = causes_of([*second, *first], downstream="d")
    assert found[0].links == tuple(each.id for each in first)


def test_unknown_numbers_make_a_sum_a_least_one() -> None:
    waiting = waiting_of([link(1, waiting=5), link(2, waiting=None)])
    assert str(waiting) == "at least 5 messages wait upstream"
    old = replace(link(1, waiting=None), waited_last=849)
    assert str(waiting_of([old])) == "at least 849 messages wait upstream"
    assert str(waiting_of([link(1, waiting=1)])) == "1 message waits upstream"
    assert str(waiting_of([link(1, waiting=3120)])) == "3,120 messages wait upstream"
    assert str(waiting_of([link(1, waiting=0)])) == "no messages wait upstream"
    assert str(waiting_of([link(1, waiting=None)])) == "how many messages wait upstream is not known"


@pytest.mark.parametrize(
    ("links", "level"),
    [
        ([], Level.FINE),
        ([link(1, Status.RUNNING), link(2, Status.PAUSED)], Level.FINE),
        ([link(1, Status.RUNNING), link(2, Status.STARTING)], Level.STARTING),
        ([link(1), link(2, Status.STARTING)], Level.DEGRADED),
        ([link(1), link(2, Status.RUNNING)], Level.DEGRADED),
        ([link(1), link(2, Status.PAUSED)], Level.DOWN),
    ],
)
def test_how_bad_it_is(links: list[LinkFacts], level: Level) -> None:
    assert level_of(links) is level


def test_without_causes_the_verdict_counts_links() -> None:
    links = [link(1, Status.RUNNING), link(2, Status.RUNNING), link(3, Status.PAUSED)]
    assert verdict((), links, now=NOW) == "3 links, 2 running, 1 paused"


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Failure(FailureKind.DISK_ALARM), FailureKind.DISK_ALARM),
        (Failure(FailureKind.HEARTBEATS_MISSED), FailureKind.NOT_ANSWERING),
        (Failure(FailureKind.NOT_READING), FailureKind.NOT_ANSWERING),
        (Failure(FailureKind.UNRESOLVED), FailureKind.UNREACHABLE),
        (Failure(FailureKind.LOGIN, is_permanent=True), FailureKind.LOGIN),
        (Failure(FailureKind.CLOSED, is_permanent=True), FailureKind.INVALID),
        (Failure(FailureKind.TLS, is_permanent=True), FailureKind.INVALID),
        (Failure(FailureKind.CLOSED), FailureKind.OTHER),
        (Failure(), FailureKind.OTHER),
    ],
)
def test_kinds_that_need_the_same_are_one_cause(failure: Failure, kind: FailureKind) -> None:
    assert cause_of(failure) is kind


@pytest.mark.parametrize(
    ("failure", "command"),
    [
        (denied("federation: x -> dc2"), "`rabbitmqctl set_permissions -p v fed '^federation' '.*' '.*'`"),
        (denied("a.b", "exchange"), r"'^(federation|a\.b$)' '.*' '.*'"),
        (denied("a b", "topic", "read"), "`rabbitmqctl set_topic_permissions -p v fed 'a b' '.*' '.*'`"),
        (denied("v", "vhost", ""), "`rabbitmqctl set_permissions -p v fed '^federation' '.*' '.*'`"),
    ],
)
def test_the_line_that_grants_what_a_broker_denies(failure: Failure, command: str) -> None:
    assert command in advice(FailureKind.PERMISSION, "dc1", failures=[failure])


def test_a_name_that_the_agents_machine_does_not_know_is_no_broker_that_is_down() -> None:
    error = explain(socket.gaierror(-2, "Name or service not known"), where="upstream origin rabbit.dc9:5672")
    shown = advice(FailureKind.UNREACHABLE, "rabbit.dc9:5672", failures=[error.failure])
    assert shown.startswith("The name of rabbit.dc9:5672 doesn't resolve on the agent's machine: check DNS there")


def test_a_broker_that_reads_nothing_is_not_said_to_say_nothing() -> None:
    shown = advice(FailureKind.NOT_ANSWERING, "dc1", failures=[Failure(FailureKind.NOT_READING)])
    assert shown.startswith("dc1 takes nothing more of what it is sent: a queue that the error names")
    assert "says nothing" in advice(FailureKind.NOT_ANSWERING, "dc1", failures=[Failure(FailureKind.NOT_ANSWERING)])


def test_a_link_that_is_further_behind_than_allowed_is_a_cause_while_it_runs() -> None:
    running = replace(link(1, Status.RUNNING, None, "", waiting=900), behind_since=NOW - 60)
    fine = link(2, Status.RUNNING, None, "")
    [cause] = causes_of([running, fine], downstream="dc2")
    assert (cause.trouble, cause.broker, cause.since) == (FailureKind.BEHIND, "dc1", NOW - 60)
    assert level_of([running, fine]) is Level.DEGRADED
    assert verdict([cause], [running, fine], now=NOW) == (
        "dc1 (upstream): further behind than lag-critical for 1 min, 1 of 2 links behind, 900 messages wait upstream"
    )


def test_a_link_that_is_behind_and_knows_why_says_it_and_whose_fault_it_is() -> None:
    why = "150 refused by the destination (is a queue there full?) and tried again"
    behind = replace(link(1, Status.RUNNING, None, why), behind_since=NOW, is_refused=True)
    [cause] = causes_of([behind], downstream="dc2")
    assert (cause.side, cause.broker, cause.error) == ("downstream", "dc2", why)
    assert cause.advice == f"Look first at what holds the links up: {why}."


CATCHING_UP = LagDescription("catching up at 47/s", is_catching_up=True)
AT_PREFETCH = LagDescription("all 10 of its prefetch unconfirmed", is_at_prefetch=True)
SLOW = LagDescription("in 200/s, out 47/s")


@pytest.mark.parametrize(
    ("lags", "shown", "advised"),
    [
        ([CATCHING_UP], CATCHING_UP, "Wait: the links forward more than is published on dc1"),
        ([AT_PREFETCH], AT_PREFETCH, "Raise `prefetch-count`, of a shovel `src-prefetch-count`, or remove it"),
        ([SLOW], SLOW, "More is published on dc1 than the links forward"),
        ([CATCHING_UP, NO_LAG, AT_PREFETCH], AT_PREFETCH, "Raise `prefetch-count`"),
    ],
)
def test_what_to_do_about_a_lag_depends_on_what_it_comes_from(
    lags: list[LagDescription], shown: LagDescription, advised: str
) -> None:
    links = [
        replace(link(number, Status.RUNNING, None, ""), behind_since=NOW, lag=lag) for number, lag in enumerate(lags)
    ]
    [cause] = causes_of(links, downstream="dc2")
    assert cause.error == shown.text
    assert cause.advice.startswith(advised)
    assert advice_for(links[-1], downstream="dc2") == cause.advice


@pytest.mark.parametrize("status", [Status.PAUSED, Status.STANDBY, Status.BLOCKED])
def test_a_link_that_is_not_to_move_messages_or_has_another_trouble_is_not_behind(status: Status) -> None:
    found = causes_of([replace(link(1, status), behind_since=NOW)], downstream="dc2")
    assert FailureKind.BEHIND not in {cause.trouble for cause in found}


def of_shovel(number: int, failure: Failure, *, status: Status = Status.BACKOFF) -> LinkFacts:
    """From the agent's own downstream to another broker."""
    found = link(number, status, failure, "why", upstream="dc2")
    return replace(found, is_from_downstream=True, destination="dc1")


@pytest.mark.parametrize(
    ("status", "failure", "to_do"),
    [
        (Status.BLOCKED, MEMORY, "On dc1, `rabbitmq-diagnostics memory_breakdown`"),
        (Status.STALLED, STALLED, "dc1 confirms none"),
        (Status.BACKOFF, Failure(FailureKind.NOT_FOUND, side=Side.DOWNSTREAM), "Create on dc1 what"),
        (
            Status.INVALID,
            replace(denied("x", "exchange", "write"), side=Side.DOWNSTREAM),
            "On dc1, user 'fed' needs write on exchange 'x'",
        ),
    ],
)
def test_a_shovel_to_another_broker_blames_that_broker(status: Status, failure: Failure, to_do: str) -> None:
    [cause] = causes_of([of_shovel(1, failure, status=status)], downstream="dc2")
    assert (cause.side, cause.broker) == ("destination", "dc1")
    assert to_do in cause.advice
    own = replace(of_shovel(1, failure, status=status), destination="")
    assert [(each.side, each.broker) for each in causes_of([own], downstream="dc2")] == [("downstream", "dc2")]


def test_a_broker_is_one_cause_whether_links_come_from_there_or_go_there() -> None:
    there = replace(UNREACHABLE, side=Side.DOWNSTREAM)
    to_dc1, from_dc1 = of_shovel(1, there), link(2, Status.BACKOFF, UNREACHABLE)
    [cause] = causes_of([to_dc1, from_dc1], downstream="dc2")
    assert (cause.side, cause.broker, len(cause.links)) == ("upstream", "dc1", 2)
    from_dc2, to_dc2 = of_shovel(3, UNREACHABLE), link(4, Status.BACKOFF, there)
    [cause] = causes_of([from_dc2, to_dc2], downstream="dc2")
    assert (cause.side, cause.broker, len(cause.links)) == ("downstream", "dc2", 2)


def test_since_is_when_the_trouble_began_that_the_cause_is_about() -> None:
    """Not when a link got its status for another reason."""
    links = [link(1, Status.BACKOFF, ago=15), replace(link(2, Status.BACKOFF, ago=240), trouble_since=NOW - 14)]
    [cause] = causes_of(links, downstream="dc2")
    assert cause.since == NOW - 15


def test_a_trouble_that_comes_again_and_again_is_a_cause_while_the_link_runs() -> None:
    error = "upstream x: connection refused"
    cut = replace(link(1, Status.RUNNING, UNREACHABLE, error, ago=2), recurs=True, trouble_since=NOW - 130)
    other = replace(cut, id="2", status=Status.BACKOFF, failure=LOST, error="upstream x: ended")
    found = causes_of([cut, other, link(3, Status.RUNNING, None, "")], downstream="dc2")
    assert [(each.trouble, each.broker, len(each.links)) for each in found] == [(FailureKind.LOST, "dc1", 2)]
    assert verdict(found, [cut, other, cut], now=NOW) == (
        "dc1 (upstream): connection lost again and again for 2 min, 2 of 3 links interrupted"
    )
    assert level_of([cut, link(3, Status.RUNNING)]) is Level.DEGRADED


def test_advice_covers_all_links_of_a_cause() -> None:
    def advised(*found: tuple[Failure, str]) -> str:
        [cause] = causes_of(
            [link(at, Status.INVALID, failure, error) for at, (failure, error) in enumerate(found)], downstream="dc2"
        )
        return cause.advice

    missing = [(replace(NO_VHOST, vhost=f"v{number}"), f"no v{number}") for number in range(12)]
    assert advised(*missing[:2]) == (
        "Create the vhosts on dc1 (`rabbitmqctl add_vhost v0`, `rabbitmqctl add_vhost v1`), "
        "or correct the paths of the URIs."
    )
    assert "`rabbitmqctl add_vhost v9` and 2 more vhosts)" in advised(*missing)
    absent = Failure(FailureKind.NOT_FOUND, vhost="/", object_type="exchange", is_permanent=True)
    gone = [(replace(absent, object=f"nx{number}"), f"no nx{number}") for number in (1, 2)]
    assert "All that is named: exchange 'nx1' in vhost '/', exchange 'nx2' in vhost '/'." in advised(*gone)
    assert "All that is named" not in advised(gone[0], gone[0])
    logins = [(replace(INVALID, kind=FailureKind.LOGIN, user=user), f"no {user}") for user in "ab"]
    assert "All that is named: 'a', 'b'." in advised(*logins)
    shown = "`federation-agent links --status invalid --status backoff` shows them."
    assert advised((INVALID, "a"), (INVALID, "a"), (INVALID, "b")).endswith(f" 1 more link has another error: {shown}")
    others = [(INVALID, error) for error in "1123"]
    assert advised(*others).endswith(f" 2 more links have other errors: {shown}")
    assert "other error" not in advised((INVALID, "a"), (INVALID, "a"))


def test_the_advice_for_a_link_is_that_of_its_cause() -> None:
    for each in (*incident(), link(1, Status.STALLED), link(2, Status.BACKOFF, UNREACHABLE, "x")):
        causes = causes_of([each], downstream="dc2")
        assert advice_for(each, downstream="dc2") == (causes[0].advice if causes else "")


def test_one_command_grants_a_user_what_all_links_lack() -> None:
    links = [refused(1, queue="a"), refused(2, queue="b"), refused(3, queue="c", upstream="dc4")]
    [cause, _] = causes_of(links, downstream="dc2")
    for each in links[:2]:
        told = advice_for(each, links, downstream="dc2")
        assert "set_permissions -p v fed '^(federation|a$|b$)' '.*' '.*'" in told
        assert told.partition("Run ")[2] == cause.advice.partition("Run ")[2]
    assert "queue 'b', configure on queue 'a' in vhost" in advice_for(links[1], links, downstream="dc2")


def test_a_link_is_told_what_it_lacks_itself() -> None:
    """Its cause shows only one of the errors of its links."""
    links = [link(at, Status.INVALID, replace(NO_VHOST, vhost=name), name) for at, name in enumerate("ab")]
    assert ["add_vhost a`" in advice_for(links[0], links, downstream="dc2"),
            "add_vhost b`" in advice_for(links[1], links, downstream="dc2")] == [True, True]  # fmt: skip


def test_a_paused_link_can_be_resumed_at_once_and_others_need_no_advice() -> None:
    paused = link(1, Status.PAUSED, None, "")
    assert not causes_of([paused], downstream="dc2")
    assert "`federation-agent resume 00000001`" in advice_for(paused, downstream="dc2")
    for status in (Status.RUNNING, Status.STANDBY, Status.STARTING, Status.TERMINATED):
        assert advice_for(link(1, status, None, ""), downstream="dc2") == ""


def test_a_link_that_is_stalled_blames_the_side_where_the_reason_is() -> None:
    at_upstream = link(1, Status.STALLED, replace(STALLED, side=Side.UPSTREAM), "no probe has come through")
    found = causes_of([link(2, Status.STALLED, STALLED, "none confirmed"), at_upstream], downstream="dc2")
    assert {(cause.side, cause.broker) for cause in found} == {("downstream", "dc2"), ("upstream", "dc1")}


def test_a_command_shows_how_full_the_queues_are_that_confirm_nothing() -> None:
    """Only where messages go to: the error of an exchange link has its exchange, and a queue behind it is full."""
    stalled = [
        replace(link(number, Status.STALLED, STALLED, "no confirm for 30 s"), destination_vhost=vhost)
        for number, vhost in enumerate(("/", "two words", "/"))
    ]
    commands = [f"`rabbitmqctl list_queues -p {each} name messages policy arguments`" for each in ("/", "'two words'")]
    [cause] = causes_of(stalled, downstream="dc2")
    assert cause.advice.endswith(f"To see how full they are: {', '.join(commands)}. {MOVE}")
    assert advice_for(stalled[1], downstream="dc2").endswith(f"To see how full they are: {commands[1]}. {MOVE}")
    [cause] = causes_of([replace(stalled[0], failure=replace(STALLED, side=Side.UPSTREAM))], downstream="dc2")
    assert "list_queues" not in cause.advice


def test_a_cause_names_first_what_began_last_with_its_error() -> None:
    """Two full queues of one downstream are one cause, and the first may be known already."""
    old, new = (
        replace(link(number, Status.STALLED, STALLED, f"{name} is full", ago=ago), vhost="v", name=name)
        for number, name, ago in ((1, "orders", 7_200.0), (2, "stock", 60.0))
    )
    [cause] = causes_of([old, new], downstream="dc2")
    assert (cause.names, cause.error, cause.since) == (("v/stock", "v/orders"), "stock is full", NOW - 7_200)


def test_what_began_later_comes_before_what_somebody_works_on_already() -> None:
    full = [link(number, Status.STALLED, STALLED, "no confirm for 30 s", ago=600) for number in range(1, 4)]
    new = [link(4, ago=6, upstream="dc7")]
    found = causes_of([*full, *new], downstream="dc2")
    assert [cause.trouble for cause in found] == [FailureKind.MEMORY_ALARM, FailureKind.NO_CONFIRMS]
    many = [link(10 + number, Status.STALLED, STALLED, "no confirm for 30 s", ago=600) for number in range(20)]
    assert causes_of([*many, *new], downstream="dc2")[0].trouble is FailureKind.NO_CONFIRMS


def test_an_agent_that_stood_still_blames_itself_for_all_its_links() -> None:
    error = "the agent stood still for so long that another agent of its group may run the link"
    dropped = [
        link(number, Status.BACKOFF, Failure(FailureKind.STOOD_STILL, side), error, upstream=f"dc{number}", ago=2)
        for number, side in enumerate((Side.UPSTREAM, Side.DOWNSTREAM, Side.UPSTREAM))
    ]
    (cause,) = causes_of(dropped, downstream="dc2")
    assert (cause.side, cause.broker, cause.trouble) == ("agent", "this agent", FailureKind.STOOD_STILL)
    assert len(cause.links) == 3
    assert "CPU" in cause.advice


def known(found: LinkFacts, trouble: FailureKind = FailureKind.MEMORY_ALARM, at: float = NOW) -> LinkFacts:
    return replace(found, acknowledged=acknowledged("downstream", trouble, by="ann@ops", at=at, reason="known"))


def unreachable(number: int) -> LinkFacts:
    """That never moved a message: without an acknowledgement it comes after links that did."""
    return link(number, Status.BACKOFF, UNREACHABLE, "upstream h: connection refused", flowed=None)


def first_of(*links: LinkFacts) -> tuple[FailureKind, Acknowledgement | None]:
    first, *_ = causes_of(links, downstream="dc2")
    return first.trouble, first.acknowledged


def test_what_somebody_knows_comes_behind_what_nobody_knows() -> None:
    new = unreachable(9)
    assert first_of(link(1), new) == (FailureKind.MEMORY_ALARM, None)
    assert first_of(known(link(1)), new) == (FailureKind.UNREACHABLE, None)
    forgotten = replace(link(8, Status.PAUSED, None, "paused"), is_forgotten=True)
    assert first_of(known(link(1)), forgotten) == (FailureKind.PAUSED, None)
    assert level_of([known(link(1))]) is Level.DOWN, "nothing flows all the same"


def test_a_link_that_stands_still_since_brings_its_cause_back() -> None:
    new, two = unreachable(9), [known(link(1), at=NOW - 9), known(link(2))]
    assert first_of(*two, new)[0] is FailureKind.UNREACHABLE
    assert first_of(*two, link(3), new) == (FailureKind.MEMORY_ALARM, None)
    assert first_of(two[1])[1] == two[1].acknowledged
    assert first_of(*two)[1] == two[1].acknowledged, "the last one"


def test_another_trouble_of_the_same_link_is_news() -> None:
    assert first_of(known(link(1), FailureKind.DISK_ALARM), unreachable(9)) == (FailureKind.MEMORY_ALARM, None)
    at_upstream = replace(known(unreachable(1), FailureKind.UNREACHABLE))
    assert first_of(at_upstream) == (FailureKind.UNREACHABLE, None), "the same trouble of the other side"
    of_another_release = replace(link(1), acknowledged=acknowledged("downstream", "on fire", by="", at=NOW, reason=""))
    assert first_of(of_another_release) == (FailureKind.MEMORY_ALARM, None)


def test_where_all_is_known_the_verdict_says_by_whom() -> None:
    links = [known(link(1))]
    assert verdict(causes_of(links, downstream="dc2"), links, now=NOW) == (
        "dc2 (downstream): memory alarm for 4 min, 1 of 1 link blocked, acknowledged by ann@ops"
    )


def test_a_cause_has_an_id_that_stays_while_it_grows_and_is_its_own() -> None:
    [one] = causes_of([link(1)], downstream="dc2")
    more = causes_of([link(1, waiting=7), link(2, ago=9), *incident()], downstream="dc2")
    assert [cause.id for cause in more].count(one.id) == 1
    assert len({cause.id for cause in more}) == len(more)
    assert next(cause for cause in more if cause.id == one.id).trouble is FailureKind.MEMORY_ALARM
    assert len(one.id) == 8
    assert int(one.id, 16) >= 0
