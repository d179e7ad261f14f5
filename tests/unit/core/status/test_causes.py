"""Causes of trouble: grouped, ranked, and in words. The first scene is one that misled operators."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from agent.core.links.critical import NO_LAG, LagDescription
from agent.core.links.lifecycle import Level, Status
from agent.core.status.acknowledgements import Acknowledgement, acknowledged
from agent.core.status.advice import Denied, Trouble, advice, denied, trouble_of
from agent.core.status.causes import (
    LinkFacts,
    advice_for,
    causes_of,
    is_blamed_on_destination,
    level_of,
    verdict,
    waiting_of,
)
from agent.network import explain

NOW = 1_000_000.0
ALARM = "downstream blocked: low on memory"


def link(  # the defaults are a link that an alarm stopped
    number: int,
    status: Status = Status.BLOCKED,
    reason: str = "downstream_blocked",
    error: str = ALARM,
    *,
    upstream: str = "dc1",
    ago: float = 250.0,
    flowed: float | None = 5.0,  # seconds before
    waiting: int | None = 0,
) -> LinkFacts:
    last = None if flowed is None else NOW - ago - flowed
    return LinkFacts(f"{number:08x}", status, reason, error, upstream, NOW - ago, last_confirm=last, waiting=waiting)


def refused(number: int, *, queue: str = "q", upstream: str = "dc3") -> LinkFacts:
    error = f"upstream x: ACCESS_REFUSED - configure access to queue '{queue}' in vhost 'v' refused for user 'fed'"
    reason = "upstream_refused"
    return link(number, Status.INVALID, reason, error, upstream=upstream, ago=90_000, flowed=None, waiting=None)


def incident() -> list[LinkFacts]:
    """Six live links blocked by an alarm, four old misconfigurations, three links that run."""
    blocked = [link(number, waiting=100 + number, upstream=f"dc{number % 2}") for number in range(6)]
    old = [refused(10 + number, upstream=f"old{number}") for number in range(4)]
    return [*old, *blocked, *(link(20 + number, Status.RUNNING, "opened", "") for number in range(3))]


def test_the_incident_comes_before_old_mistakes() -> None:
    links = incident()
    causes = causes_of(links, downstream="dc2-prod")
    assert [(cause.trouble, len(cause.links)) for cause in causes] == [
        (Trouble.MEMORY_ALARM, 6), (Trouble.PERMISSION, 1), (Trouble.PERMISSION, 1), (Trouble.PERMISSION, 1),
        (Trouble.PERMISSION, 1),
    ]  # fmt: skip
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
        error = (
            f"upstream x: read access to topic 'k{number}' in exchange '{exchange}' in vhost 'v' refused for user 'u'"
        )
        return link(number, Status.INVALID, "upstream_refused", error)

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
    missing = "upstream u h:5672: vhost 'no pe' does not exist: create it there or fix the path of the URI"
    forgotten = [replace(link(number, Status.PAUSED, "paused", "paused"), is_forgotten=True) for number in (1, 2)]
    links = [refused(3), link(4, Status.INVALID, "upstream_refused", missing), *forgotten]
    commands = {each.trouble: each.advice.split("`")[1] for each in causes_of(links, downstream="d")}
    assert commands == {
        Trouble.PERMISSION: "rabbitmqctl set_permissions -p v fed '^(federation|q$)' '.*' '.*'",
        Trouble.NO_VHOST: "rabbitmqctl add_vhost 'no pe'",
        Trouble.PAUSED: "federation-agent resume 00000001 00000002",
    }
    many = [replace(forgotten[0], id=f"{number:08x}") for number in range(1_000)]
    assert "`federation-agent links --status paused`" in causes_of(many, downstream="d")[0].advice


def test_another_user_is_another_cause() -> None:
    other = "ACCESS_REFUSED - read access to queue 'q' in vhost 'v' refused for user 'other'"
    found = causes_of([refused(1), link(2, Status.INVALID, "upstream_refused", other, upstream="dc3")], downstream="d")
    assert len(found) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([link(1, waiting=0)], [link(2, reason="upstream_lost", flowed=None, upstream="u")] * 3),
        ([link(1, flowed=3_000)], [link(2, flowed=86_400, upstream="u", waiting=9)] * 3),
        ([link(1, Status.STALLED, "no_confirms", "none", flowed=None)], [link(2, flowed=None, upstream="u")] * 3),
        ([link(1), link(2)], [link(3, Status.BACKOFF, "upstream_lost", "lost", waiting=900)]),
        ([link(1, waiting=2)], [link(3, Status.BACKOFF, "upstream_lost", "lost", waiting=1)]),
        ([link(1, ago=10)], [link(3, Status.BACKOFF, "upstream_lost", "lost", ago=20)]),
    ],
    ids=["were flowing", "flowed lately", "connected", "more links", "more messages", "more recent"],
)
def test_what_comes_first(first: list[LinkFacts], second: list[LinkFacts]) -> None:
    other = {"status": Status.BACKOFF, "reason": "upstream_lost", "error": "lost", "upstream": "u"}
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
    ("status", "reason", "error", "trouble"),
    [
        (Status.BLOCKED, "downstream_blocked", "downstream blocked: low on disk", Trouble.DISK_ALARM),
        (Status.BLOCKED, "upstream_blocked", "upstream blocked: ", Trouble.BLOCKED),
        (Status.STALLED, "no_confirms", "no confirm for 30 s", Trouble.NO_CONFIRMS),
        (Status.BACKOFF, "upstream_unreachable", "connection refused", Trouble.UNREACHABLE),
        (Status.BACKOFF, "upstream_heartbeat", "heartbeats missed", Trouble.SILENT),
        (Status.BACKOFF, "upstream_standstill", "the agent stood still", Trouble.STOOD_STILL),
        (Status.BACKOFF, "upstream_unreachable", "connected, but no AMQP within 20 s: the", Trouble.SILENT),
        (Status.BACKOFF, "upstream_unreachable", "it accepts connections and doesn't answer, it did", Trouble.SILENT),
        (Status.INVALID, "upstream_refused", "login refused for user 'u': check", Trouble.LOGIN),
        (Status.INVALID, "upstream_refused", "vhost 'v' does not exist: create it there or", Trouble.NO_VHOST),
        (Status.INVALID, "upstream_refused", "user 'u' may not access vhost 'v': give", Trouble.PERMISSION),
        (Status.INVALID, "upstream_refused", "something else", Trouble.INVALID),
        (Status.BACKOFF, "upstream_closed", "something else", Trouble.OTHER),
    ],
)
def test_kinds_of_trouble(status: Status, reason: str, error: str, trouble: Trouble) -> None:
    assert trouble_of(status, reason, error) is trouble


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            "access to exchange 'a b' in vhost '/' refused for user 'u'",
            Denied("", "exchange 'a b'", "/", "u"),
        ),
        (
            "access to topic 'k' in exchange 'x' in vhost '/' refused for user 'u'",
            Denied("", "topic 'k' in exchange 'x'", "/", "u"),
        ),
        ("write access to queue 'q' in vhost 'v' refused for user 'u'", Denied("write", "queue 'q'", "v", "u")),
        ("nothing of the kind", None),
        ("access to queue " * 10_000, None),
    ],
)
def test_what_a_broker_denies(error: str, expected: Denied | None) -> None:
    assert denied(error) == expected


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (
            "configure access to queue 'federation: x -> dc2' in vhost '/' refused for user 'u'",
            "`rabbitmqctl set_permissions -p / u '^federation' '.*' '.*'`",
        ),
        ("configure access to exchange 'a.b' in vhost '/' refused for user 'u'", r"'^(federation|a\.b$)' '.*' '.*'"),
        (
            "read access to topic '#' in exchange 'a b' in vhost '/' refused for user 'u'",
            "`rabbitmqctl set_topic_permissions -p / u 'a b' '.*' '.*'`",
        ),
    ],
)
def test_the_line_that_grants_what_a_broker_denies(error: str, command: str) -> None:
    assert command in advice(Trouble.PERMISSION, "dc1", error)


def test_a_name_that_the_agents_machine_does_not_know_is_no_broker_that_is_down() -> None:
    error = str(explain(socket.gaierror(-2, "Name or service not known"), where="upstream origin rabbit.dc9:5672"))
    told = advice(Trouble.UNREACHABLE, "rabbit.dc9:5672", error)
    assert told.startswith("The name of rabbit.dc9:5672 doesn't resolve on the agent's machine: check DNS there")


def test_a_link_that_is_further_behind_than_allowed_is_a_cause_while_it_runs() -> None:
    running = replace(link(1, Status.RUNNING, "opened", "", waiting=900), behind_since=NOW - 60)
    fine = link(2, Status.RUNNING, "opened", "")
    [cause] = causes_of([running, fine], downstream="dc2")
    assert (cause.trouble, cause.broker, cause.since) == (Trouble.BEHIND, "dc1", NOW - 60)
    assert level_of([running, fine]) is Level.DEGRADED
    assert verdict([cause], [running, fine], now=NOW) == (
        "dc1 (upstream): further behind than lag-critical for 1 min, 1 of 2 links behind, 900 messages wait upstream"
    )


def test_a_link_that_is_behind_and_knows_why_says_it_and_whose_fault_it_is() -> None:
    why = "150 refused by the downstream (basic.nack: is a queue there full?) and tried again"
    [cause] = causes_of([replace(link(1, Status.RUNNING, "opened", why), behind_since=NOW)], downstream="dc2")
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
        replace(link(number, Status.RUNNING, "opened", ""), behind_since=NOW, lag=lag)
        for number, lag in enumerate(lags)
    ]
    [cause] = causes_of(links, downstream="dc2")
    assert cause.error == shown.text
    assert cause.advice.startswith(advised)
    assert advice_for(links[-1], downstream="dc2") == cause.advice


@pytest.mark.parametrize("status", [Status.PAUSED, Status.STANDBY, Status.BLOCKED])
def test_a_link_that_is_not_to_move_messages_or_has_another_trouble_is_not_behind(status: Status) -> None:
    found = causes_of([replace(link(1, status), behind_since=NOW)], downstream="dc2")
    assert Trouble.BEHIND not in {cause.trouble for cause in found}


def of_shovel(number: int, error: str, *, status: Status = Status.BACKOFF, destination: str = "dc1") -> LinkFacts:
    """From the agent's own downstream to another broker."""
    side = error.partition(" ")[0]
    found = link(number, status, f"{side}_refused", error, upstream="dc2")
    return replace(found, is_from_downstream=True, destination=destination)


@pytest.mark.parametrize(
    ("status", "error", "to_do"),
    [
        (Status.BLOCKED, ALARM, "On dc1, `rabbitmq-diagnostics memory_breakdown`"),
        (Status.STALLED, "no confirm for 30 s", "dc1 confirms none"),
        (Status.BACKOFF, "downstream x: exchange 'x' is missing in vhost 'v': declare it", "Create on dc1 what"),
        (
            Status.INVALID,
            "downstream x: write access to exchange 'x' in vhost 'v' refused for user 'u'",
            "On dc1, user 'u' needs write on exchange 'x'",
        ),
    ],
)
def test_a_shovel_to_another_broker_blames_that_broker(status: Status, error: str, to_do: str) -> None:
    [cause] = causes_of([of_shovel(1, error, status=status)], downstream="dc2")
    assert (cause.side, cause.broker) == ("destination", "dc1")
    assert to_do in cause.advice
    own = replace(of_shovel(1, error, status=status), destination="")
    assert [(each.side, each.broker) for each in causes_of([own], downstream="dc2")] == [("downstream", "dc2")]


def test_a_broker_is_one_cause_whether_links_come_from_there_or_go_there() -> None:
    down = "x: connection refused"
    to_dc1, from_dc1 = of_shovel(1, f"downstream {down}"), link(2, Status.BACKOFF, "upstream_lost", f"upstream {down}")
    [cause] = causes_of([to_dc1, from_dc1], downstream="dc2")
    assert (cause.side, cause.broker, len(cause.links)) == ("upstream", "dc1", 2)
    from_dc2, to_dc2 = (
        of_shovel(3, f"upstream {down}"),
        link(4, Status.BACKOFF, "downstream_lost", f"downstream {down}"),
    )
    [cause] = causes_of([from_dc2, to_dc2], downstream="dc2")
    assert (cause.side, cause.broker, len(cause.links)) == ("downstream", "dc2", 2)


def test_since_is_when_the_trouble_began_that_the_cause_is_about() -> None:
    """Not when a link got its status for another reason."""
    links = [link(1, Status.BACKOFF, ago=15), replace(link(2, Status.BACKOFF, ago=240), trouble_since=NOW - 14)]
    [cause] = causes_of(links, downstream="dc2")
    assert cause.since == NOW - 15


def test_a_trouble_that_comes_again_and_again_is_a_cause_while_the_link_runs() -> None:
    error = "upstream x: connection refused"
    cut = replace(link(1, Status.RUNNING, "upstream_unreachable", error, ago=2), recurs=True, trouble_since=NOW - 130)
    other = replace(cut, id="2", status=Status.BACKOFF, reason="upstream_lost", error="upstream x: ended")
    found = causes_of([cut, other, link(3, Status.RUNNING, "opened", "")], downstream="dc2")
    assert [(each.trouble, each.broker, len(each.links)) for each in found] == [(Trouble.LOST, "dc1", 2)]
    assert verdict(found, [cut, other, cut], now=NOW) == (
        "dc1 (upstream): connection lost again and again for 2 min, 2 of 3 links interrupted"
    )
    assert level_of([cut, link(3, Status.RUNNING)]) is Level.DEGRADED


def down(number: int, error: str) -> LinkFacts:
    return link(number, Status.INVALID, "upstream_refused", f"upstream x: {error}")


def test_advice_covers_all_links_of_a_cause() -> None:
    def advised(*errors: str) -> str:
        [cause] = causes_of([down(at, error) for at, error in enumerate(errors)], downstream="dc2")
        return cause.advice

    missing = [f"vhost 'v{number}' does not exist: create it there" for number in range(12)]
    assert advised(*missing[:2]) == (
        "Create the vhosts on dc1 (`rabbitmqctl add_vhost v0`, `rabbitmqctl add_vhost v1`), "
        "or correct the paths of the URIs."
    )
    assert "`rabbitmqctl add_vhost v9` and 2 more vhosts)" in advised(*missing)
    gone = [f"NOT_FOUND - no exchange 'nx{number}' in vhost '/'" for number in (1, 2)]
    assert "All that is named: exchange 'nx1' in vhost '/', exchange 'nx2' in vhost '/'." in advised(*gone)
    assert "All that is named" not in advised(gone[0], gone[0])
    assert "All that is named: 'a', 'b'." in advised(*(f"login refused for user '{user}': check" for user in "ab"))
    shown = "`federation-agent links --status invalid --status backoff` shows them."
    assert advised("type 'a'", "type 'a'", "type 'b'").endswith(f" 1 more link has another error: {shown}")
    assert advised("1", "1", "2", "3").endswith(f" 2 more links have other errors: {shown}")
    assert "other error" not in advised("type 'a'", "type 'a'")


def test_the_advice_for_a_link_is_that_of_its_cause() -> None:
    for each in (*incident(), link(1, Status.STALLED), link(2, Status.BACKOFF, "upstream_unreachable", "x")):
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
    errors = (f"vhost '{name}' does not exist: create it there" for name in "ab")
    links = [link(at, Status.INVALID, "upstream_refused", error) for at, error in enumerate(errors)]
    assert ["add_vhost a`" in advice_for(links[0], links, downstream="dc2"),
            "add_vhost b`" in advice_for(links[1], links, downstream="dc2")] == [True, True]  # fmt: skip


def test_a_paused_link_can_be_resumed_at_once_and_others_need_no_advice() -> None:
    paused = link(1, Status.PAUSED, "paused", "")
    assert not causes_of([paused], downstream="dc2")
    assert "`federation-agent resume 00000001`" in advice_for(paused, downstream="dc2")
    for status in (Status.RUNNING, Status.STANDBY, Status.STARTING, Status.TERMINATED):
        assert advice_for(link(1, status, "opened", ""), downstream="dc2") == ""


@pytest.mark.parametrize(
    ("error", "is_downstreams"),
    [
        ("messages wait, and the downstream has confirmed none for 30 s", True),
        ("no probe has come through for 14 s: look for what holds up the link's queue, and at the downstream", True),
        ("no probe has come through for 14 s: upstream origin 10.0.0.1:5672: write access refused", False),
        ("upstream origin 10.0.0.1:5672: the quarantine can't be reached", False),
    ],
)
def test_a_link_that_is_stalled_blames_the_side_that_its_error_names(error: str, *, is_downstreams: bool) -> None:
    assert is_blamed_on_destination(Status.STALLED, "no_confirms", error) is is_downstreams


def test_a_command_shows_how_full_the_queues_are_that_confirm_nothing() -> None:
    """Only where messages go to: the error of an exchange link has its exchange, and a queue behind it is full."""
    stalled = [
        replace(link(number, Status.STALLED, "no_confirms", "no confirm for 30 s"), destination_vhost=vhost)
        for number, vhost in enumerate(("/", "two words", "/"))
    ]
    commands = [f"`rabbitmqctl list_queues -p {each} name messages policy arguments`" for each in ("/", "'two words'")]
    [cause] = causes_of(stalled, downstream="dc2")
    assert cause.advice.endswith(f"To see how full they are: {', '.join(commands)}.")
    assert advice_for(stalled[1], downstream="dc2").endswith(f"To see how full they are: {commands[1]}.")
    [cause] = causes_of([replace(stalled[0], error="upstream dc1: the quarantine is away")], downstream="dc2")
    assert "list_queues" not in cause.advice


def test_a_cause_names_first_what_began_last_with_its_error() -> None:
    """Two full queues of one downstream are one cause, and the first may be known already."""
    old, new = (
        replace(link(number, Status.STALLED, "no_confirms", f"{name} is full", ago=ago), vhost="v", name=name)
        for number, name, ago in ((1, "orders", 7_200.0), (2, "stock", 60.0))
    )
    [cause] = causes_of([old, new], downstream="dc2")
    assert (cause.names, cause.error, cause.since) == (("v/stock", "v/orders"), "stock is full", NOW - 7_200)


def test_what_began_later_comes_before_what_somebody_works_on_already() -> None:
    full = [link(number, Status.STALLED, "no_confirms", "no confirm for 30 s", ago=600) for number in range(1, 4)]
    new = [link(4, ago=6, upstream="dc7")]
    found = causes_of([*full, *new], downstream="dc2")
    assert [cause.trouble for cause in found] == [Trouble.MEMORY_ALARM, Trouble.NO_CONFIRMS]
    many = [link(10 + number, Status.STALLED, "no_confirms", "no confirm for 30 s", ago=600) for number in range(20)]
    assert causes_of([*many, *new], downstream="dc2")[0].trouble is Trouble.NO_CONFIRMS


def test_an_agent_that_stood_still_blames_itself_for_all_its_links() -> None:
    error = "the agent stood still for so long that another agent of its group may run the link"
    dropped = [
        link(number, Status.BACKOFF, f"{side}_standstill", error, upstream=f"dc{number}", ago=2)
        for number, side in enumerate(("upstream", "downstream", "upstream"))
    ]
    (cause,) = causes_of(dropped, downstream="dc2")
    assert (cause.side, cause.broker, cause.trouble) == ("agent", "this agent", Trouble.STOOD_STILL)
    assert len(cause.links) == 3
    assert "CPU" in cause.advice


def known(found: LinkFacts, trouble: Trouble = Trouble.MEMORY_ALARM, at: float = NOW) -> LinkFacts:
    return replace(found, acknowledged=acknowledged("downstream", trouble, by="ann@ops", at=at, reason="known"))


def unreachable(number: int) -> LinkFacts:
    """That never moved a message: without an acknowledgement it comes after links that did."""
    return link(number, Status.BACKOFF, "upstream_unreachable", "upstream h: connection refused", flowed=None)


def first_of(*links: LinkFacts) -> tuple[Trouble, Acknowledgement | None]:
    first, *_ = causes_of(links, downstream="dc2")
    return first.trouble, first.acknowledged


def test_what_somebody_knows_comes_behind_what_nobody_knows() -> None:
    new = unreachable(9)
    assert first_of(link(1), new) == (Trouble.MEMORY_ALARM, None)
    assert first_of(known(link(1)), new) == (Trouble.UNREACHABLE, None)
    forgotten = replace(link(8, Status.PAUSED, "paused", "paused"), is_forgotten=True)
    assert first_of(known(link(1)), forgotten) == (Trouble.PAUSED, None)
    assert level_of([known(link(1))]) is Level.DOWN, "nothing flows all the same"


def test_a_link_that_stands_still_since_brings_its_cause_back() -> None:
    new, two = unreachable(9), [known(link(1), at=NOW - 9), known(link(2))]
    assert first_of(*two, new)[0] is Trouble.UNREACHABLE
    assert first_of(*two, link(3), new) == (Trouble.MEMORY_ALARM, None)
    assert first_of(two[1])[1] == two[1].acknowledged
    assert first_of(*two)[1] == two[1].acknowledged, "the last one"


def test_another_trouble_of_the_same_link_is_news() -> None:
    assert first_of(known(link(1), Trouble.DISK_ALARM), unreachable(9)) == (Trouble.MEMORY_ALARM, None)
    at_upstream = replace(known(unreachable(1), Trouble.UNREACHABLE))
    assert first_of(at_upstream) == (Trouble.UNREACHABLE, None), "the same trouble of the other side"


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
    assert next(cause for cause in more if cause.id == one.id).trouble is Trouble.MEMORY_ALARM
    assert len(one.id) == 8
    assert int(one.id, 16) >= 0
