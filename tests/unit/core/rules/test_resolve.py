from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from agent.core import fields
from agent.core.addresses.uri import parse
from agent.core.model import (
    AckMode,
    ApplyTo,
    Choice,
    DeclaredExchange,
    Definitions,
    Exchange,
    ExchangeLink,
    Federation,
    Link,
    LinkKind,
    LinkSettings,
    Policy,
    Queue,
    QueueSource,
    QueueType,
    SetMember,
    Shovel,
    ShovelLink,
    Upstream,
    UpstreamSet,
    VhostDefinitions,
    VhostState,
)
from agent.core.rules.resolve import Resolution, finish, resolve, resolving
from agent.errors import Place, Severity

HERE = Place("agent.yaml", 1, 1)


def upstream(name: str, settings: LinkSettings | None = None) -> Upstream:
    return Upstream(name, (parse(f"amqp://{name}"),), HERE, settings or LinkSettings())


def policy(
    name: str, value: str = "all", *, pattern: str = ".*", choice: Choice = Choice.SET,
    apply_to: ApplyTo = ApplyTo.ALL, priority: float = 0,
) -> Policy:  # fmt: skip
    return Policy(name, pattern, apply_to, priority, Federation(choice, value), HERE)


def solve(vhost: VhostDefinitions, state: VhostState | None = None) -> Resolution:
    return resolve(Definitions({"/": vhost}), {"/": state or VhostState()})


def exchanges(*found: Exchange) -> VhostState:
    return VhostState(exchanges={exchange.name: exchange for exchange in found})


def exchange_links(resolution: Resolution) -> list[ExchangeLink]:
    return [link for link in resolution.links if isinstance(link, ExchangeLink)]


def routes(resolution: Resolution) -> list[tuple[str, str, str, str]]:
    return [(link.name, link.upstream, link.remote_name, link.policy) for link in resolution.links]


def book(*policies: Policy, upstreams: Mapping[str, Upstream] | None = None) -> VhostDefinitions:
    return VhostDefinitions(
        upstreams=upstreams if upstreams is not None else {"a": upstream("a"), "b": upstream("b")},
        policies={policy.name: policy for policy in policies},
    )


def test_all_is_every_upstream_of_the_vhost() -> None:
    found = solve(book(policy("p")), exchanges(Exchange("x", "topic")))
    assert routes(found) == [("x", "a", "x", "p"), ("x", "b", "x", "p")]


def test_what_another_vhost_defines_is_told() -> None:
    other = VhostDefinitions(policies={"p": policy("p", "b", choice=Choice.UPSTREAM)})
    [problem] = resolve(Definitions({"/": book(), "shop": other}), {}).problems
    assert problem.message == (
        "upstream 'b' of federation-upstream 'b' isn't defined in vhost 'shop', so it yields no link; there is one in "
        "vhost '/': each upstream belongs to one vhost"
    )


def test_one_upstream_and_a_pattern_over_upstream_names() -> None:
    topic = exchanges(Exchange("x", "topic"))
    assert routes(solve(book(policy("p", "b", choice=Choice.UPSTREAM)), topic)) == [("x", "b", "x", "p")]
    assert routes(solve(book(policy("p", "^a$", choice=Choice.PATTERN)), topic)) == [("x", "a", "x", "p")]


def test_the_highest_priority_wins_and_nothing_is_merged() -> None:
    low = policy("low", "a", choice=Choice.UPSTREAM, priority=1)
    high = policy("high", "b", choice=Choice.UPSTREAM, priority=2)
    assert routes(solve(book(low, high), exchanges(Exchange("x", "topic")))) == [("x", "b", "x", "high")]


def test_a_policy_that_federates_nothing_wins_like_any_other() -> None:
    topic = exchanges(Exchange("x", "topic"), Exchange("y", "topic"))
    other = Policy("limits", "^x$", ApplyTo.ALL, 2, None, HERE)
    assert routes(solve(book(policy("p", "a", choice=Choice.UPSTREAM, priority=1), other), topic)) == [
        ("y", "a", "y", "p")
    ]
    higher = policy("p", "a", choice=Choice.UPSTREAM, priority=3)
    assert len(routes(solve(book(higher, other), topic))) == 2
    verdict = policy("brokers", "b", choice=Choice.UPSTREAM, priority=1)
    assert routes(solve(book(other), exchanges(Exchange("x", "topic", policy=verdict)))) == []


def test_the_brokers_verdict_is_taken_and_weighed_against_the_agents_own() -> None:
    verdict = policy("brokers", "b", choice=Choice.UPSTREAM, pattern="^nothing-like-it$", priority=5)
    judged = exchanges(Exchange("x", "topic", policy=verdict))
    assert routes(solve(book(), judged)) == [("x", "b", "x", "brokers")]
    own = policy("own", "a", choice=Choice.UPSTREAM, priority=5)
    assert routes(solve(book(own), judged)) == [("x", "a", "x", "own")]
    weak = policy("own", "a", choice=Choice.UPSTREAM, priority=4)
    assert routes(solve(book(weak), judged)) == [("x", "b", "x", "brokers")]


def test_patterns_are_unanchored_and_apply_to_is_kept() -> None:
    state = VhostState(
        exchanges={"my.federated.x": Exchange("my.federated.x", "topic"), "other": Exchange("other", "topic")},
        queues={
            "my.federated.q": Queue("my.federated.q"),
            "my.federated.qq": Queue("my.federated.qq", QueueType.QUORUM),
        },
    )
    one = {"a": upstream("a")}

    def names(apply_to: ApplyTo) -> list[str]:
        found = solve(book(policy("p", pattern="federated", apply_to=apply_to), upstreams=one), state)
        return [link.name for link in found.links]

    assert names(ApplyTo.EXCHANGES) == ["my.federated.x"]
    assert names(ApplyTo.QUEUES) == ["my.federated.q", "my.federated.qq"]
    assert names(ApplyTo.CLASSIC_QUEUES) == ["my.federated.q"]
    assert names(ApplyTo.QUORUM_QUEUES) == ["my.federated.qq"]
    assert names(ApplyTo.ALL) == ["my.federated.x", "my.federated.q", "my.federated.qq"]


def test_what_is_never_federated() -> None:
    purpose = (("x-internal-purpose", fields.text("federation")),)
    state = VhostState(
        exchanges={
            "": Exchange("", "direct"),
            "in": Exchange("in", "fanout", internal=True),
            "federation-agent: leases 1 of dc2": Exchange("federation-agent: leases 1 of dc2", "direct"),
            "made": Exchange("made", "fanout", arguments=purpose),
            "amq.topic": Exchange("amq.topic", "topic"),
        },
        queues={
            "federation: x -> c": Queue("federation: x -> c", arguments=purpose),
            "amq.gen-1": Queue("amq.gen-1", exclusive=True),
            "federation-agent: quarantine": Queue("federation-agent: quarantine"),
            "a stream": Queue("a stream", None),
        },
    )
    found = solve(book(policy("p"), upstreams={"a": upstream("a")}), state)
    assert [link.name for link in found.links] == ["amq.topic"]


def test_a_sets_value_wins_over_the_upstreams() -> None:
    definitions = VhostDefinitions(
        upstreams={"a": upstream("a", LinkSettings(max_hops=2, exchange="there", expires=60000))},
        upstream_sets={
            "s": UpstreamSet(
                "s",
                (
                    SetMember(
                        "a", LinkSettings(max_hops=5, ack_mode=AckMode.NO_ACK), frozenset({"max_hops", "ack_mode"})
                    ),
                ),
                HERE,
            ),
        },
        policies={"p": policy("p", "s")},
    )
    (link,) = exchange_links(solve(definitions, exchanges(Exchange("x", "topic"))))
    assert (link.remote_name, link.settings.max_hops, link.settings.expires) == ("there", 5, 60000)
    assert link.settings.ack_mode is AckMode.NO_ACK
    assert link.settings.prefetch_count is None


def test_an_upstream_may_stand_twice_in_a_set_with_different_exchanges() -> None:
    members = (
        SetMember("a", LinkSettings(exchange="x1"), frozenset({"exchange"})),
        SetMember("a", LinkSettings(exchange="x2"), frozenset({"exchange"})),
        SetMember("a", LinkSettings(exchange="x1"), frozenset({"exchange"})),
    )
    definitions = VhostDefinitions(
        upstreams={"a": upstream("a")},
        upstream_sets={"s": UpstreamSet("s", members, HERE)},
        policies={"p": policy("p", "s")},
    )
    found = solve(definitions, exchanges(Exchange("x", "topic")))
    assert [link.remote_name for link in found.links] == ["x1", "x2"]
    assert len({link.id for link in found.links}) == 2
    assert [problem.message for problem in found.problems] == [
        "upstream set 's' names upstream 'a' twice; the first one counts"
    ]


def test_what_is_missing_yields_no_link_and_a_warning_with_a_suggestion() -> None:
    definitions = VhostDefinitions(
        upstreams={"origin": upstream("origin")},
        upstream_sets={"both": UpstreamSet("both", (SetMember("orgin"), SetMember("origin")), HERE)},
        policies={
            "1": policy("1", "bth", pattern="^x$"),
            "2": policy("2", "both", pattern="^y$"),
            "3": policy("3", "gone", pattern="^z$", choice=Choice.UPSTREAM),
        },
    )
    found = solve(definitions, exchanges(*(Exchange(name, "topic") for name in "xyz")))
    assert routes(found) == [("y", "origin", "y", "2")]
    text = "\n".join(str(problem) for problem in found.problems)
    assert "agent.yaml:1:1: not run: upstream set 'bth'" in text
    assert "did you mean 'both'?" in text
    assert "did you mean 'origin'?" in text
    assert "upstream 'gone'" in text


def test_names_that_lead_nowhere_are_told_once_also_where_nothing_uses_them() -> None:
    there = Place("agent.yaml", 7, 1)
    members = (SetMember("gone"), SetMember("origin"))
    used, unused = (UpstreamSet(name, members, there) for name in ("used", "unused"))
    definitions = VhostDefinitions(
        upstreams={"origin": upstream("origin")},
        upstream_sets={"used": used, "unused": unused},
        policies={
            "1": policy("1", "used"),
            "2": policy("2", "missing", pattern="^nothing has this name$"),
            "3": policy("3", "^nobody", pattern="^nor this$", choice=Choice.PATTERN),
        },
    )
    found = solve(definitions, exchanges(Exchange("x", "topic"), Exchange("y", "topic")))
    assert routes(found) == [(name, "origin", name, "1") for name in "xy"]
    assert [(problem.place, problem.message.partition(" isn't")[0]) for problem in found.problems] == [
        (there, "upstream 'gone' of upstream set 'used'"),
        (HERE, "upstream set 'missing' in vhost '/'"),
        (
            HERE,
            "upstream pattern '^nobody' in vhost '/' matches no upstream, so it yields no link: there are 'origin'",
        ),
        (there, "upstream 'gone' of upstream set 'unused'"),
    ]


def test_an_exchange_names_its_set_itself_as_in_the_2x_days() -> None:
    argument = (("upstream-set", fields.text("all")), ("alternate-exchange", fields.text("ae")))
    x_argument = (("x-upstream-set", fields.text("all")),)
    one = {"a": upstream("a")}
    state = exchanges(Exchange("x", "topic", arguments=argument), Exchange("y", "direct", arguments=x_argument))
    other = policy("p", "nothing", pattern="x")
    found = solve(book(other, upstreams=one), state)
    assert [(link.name, link.policy) for link in found.links] == [
        ("x", "argument upstream-set"),
        ("y", "argument x-upstream-set"),
    ]
    assert exchange_links(found)[0].exchange.arguments == (("alternate-exchange", fields.text("ae")),)


def test_exchanges_of_the_configuration_are_federated_before_they_stand() -> None:
    declared = DeclaredExchange(Exchange("x", "topic"), HERE, upstream_set="all")
    plain = DeclaredExchange(Exchange("y", "topic"), HERE)
    definitions = VhostDefinitions(upstreams={"a": upstream("a")}, exchanges={"x": declared, "y": plain})
    assert [link.name for link in solve(definitions).links] == ["x"]
    (link,) = exchange_links(solve(definitions, exchanges(Exchange("x", "direct"))))
    assert link.exchange.type == "direct"


@pytest.mark.parametrize(
    ("kind", "refused"), [("topic", False), ("fanout", False), ("headers", False), ("direct", True)]
)
def test_forward_unrouted_needs_a_type_that_can_ask_for_everything(kind: str, refused: bool) -> None:
    definitions = book(policy("p"), upstreams={"a": upstream("a", LinkSettings(forward_unrouted=True))})
    found = solve(definitions, exchanges(Exchange("x", kind)))
    assert (found.links[0].problem is not None) == refused
    assert [problem.severity for problem in found.problems] == [Severity.ERROR] * refused


def test_vhosts_are_apart() -> None:
    there = VhostDefinitions(upstreams={"t": upstream("t")}, policies={"p": policy("p")})
    found = resolve(
        Definitions({"/": book(policy("p")), "tenant": there}),
        {"/": VhostState(), "tenant": exchanges(Exchange("x", "topic")), "empty": exchanges(Exchange("x", "topic"))},
    )
    assert [(link.vhost, link.upstream) for link in found.links] == [("tenant", "t")]


def test_shovels_are_links_too() -> None:
    shovel = Shovel("drain", (parse("amqp://a"),), (parse("amqp://b"),), HERE, QueueSource("q"))
    (link,) = solve(VhostDefinitions(shovels={"drain": shovel})).links
    assert isinstance(link, ShovelLink)
    assert (link.kind, link.name, link.shovel, link.uris) == (LinkKind.SHOVEL, "drain", shovel, shovel.source_uris)


def ids(links: tuple[Link, ...]) -> dict[tuple[str, str], str]:
    return {(link.name, link.upstream): link.id for link in links}


def test_ids_stay_the_same_whatever_else_comes_or_goes() -> None:
    first = ids(solve(book(policy("p")), exchanges(Exchange("x", "topic"))).links)
    more = ids(solve(book(policy("q")), exchanges(Exchange("w", "topic"), Exchange("x", "direct"))).links)
    assert first.items() <= more.items()
    assert all(len(link_id) == 8 and int(link_id, 16) >= 0 for link_id in more.values())


@pytest.mark.parametrize("count", [300, pytest.param(2_000, marks=pytest.mark.thorough)])
def test_a_large_cluster_resolves_in_time_that_grows_with_its_links(count: int) -> None:
    """2,000 exchanges, 50 upstreams, 200 policies: each exchange tried against all of them."""
    upstreams = {f"u{i}": upstream(f"u{i}", LinkSettings(max_hops=2)) for i in range(50)}
    policies = {f"p{i}": policy(f"p{i}", pattern=f"^x{i}\\.[a-z]+$", priority=i + 1) for i in range(199)}
    definitions = VhostDefinitions(upstreams=upstreams, policies={**policies, "last": policy("last")})
    state = exchanges(*(Exchange(f"orders-{i}", "topic") for i in range(count)))
    started = time.process_time()
    found = solve(definitions, state)
    assert len({link.id for link in found.links}) == 50 * count
    # For 2,000 a second on an idle machine; each exchange against each link takes minutes.
    assert time.process_time() - started < 1 + count / 250


SLOW = "^(a|aa)+$"
LONG = "a" * 200 + "!"


def again(vhost: VhostDefinitions, state: VhostState, before: Resolution) -> Resolution:
    return finish(resolving(Definitions({"/": vhost}), {"/": state}, previous=before.links))


def test_a_pattern_that_takes_too_long_is_a_problem_that_names_the_policy() -> None:
    found = solve(book(policy("p", pattern=SLOW), policy("q", pattern="^b")), exchanges(*map(topic, (LONG, "b"))))
    assert {link.name for link in found.links} == {"b"}
    [problem] = found.unjudged
    assert str(problem).startswith("agent.yaml:1:1: policy 'p' in vhost '/' can't be held against all names")
    assert problem.severity is Severity.ERROR


def topic(name: str) -> Exchange:
    return Exchange(name, "topic")


@pytest.mark.parametrize(
    "changed",
    [
        book(policy("p", pattern=SLOW)),
        book(policy("renamed", pattern=SLOW)),
        book(policy("renamed", pattern=SLOW, priority=9), policy("lower", "b", choice=Choice.UPSTREAM)),
    ],
)
def test_links_stay_where_a_pattern_takes_too_long(changed: VhostDefinitions) -> None:
    """A time-out never looks like a name that doesn't match: that would delete what waits upstream."""
    state = exchanges(topic(LONG))
    before = solve(book(policy("p", pattern="^a")), state)
    assert {link.id for link in before.links} == {link.id for link in again(changed, state, before).links}


def test_a_link_that_stays_follows_its_upstream() -> None:
    state = exchanges(topic(LONG))
    before = solve(book(policy("p", pattern="^a")), state)
    moved = Upstream("a", (parse("amqp://elsewhere"),), HERE)
    [link] = again(book(policy("q", pattern=SLOW), upstreams={"a": moved}), state, before).links
    assert (link.upstream, link.uris) == ("a", moved.uris)


def test_a_slow_policy_that_did_not_hold_changes_nothing() -> None:
    state = exchanges(topic(LONG))
    low = policy("low", "a", choice=Choice.UPSTREAM)
    before = solve(book(low), state)
    after = again(book(low, policy("high", "b", choice=Choice.UPSTREAM, pattern=SLOW, priority=9)), state, before)
    assert routes(after) == routes(before)


def test_upstreams_stay_where_their_pattern_takes_too_long() -> None:
    names = [f"{'a' * 200}{number}!" for number in range(20)]
    upstreams = {name: Upstream(name, (parse("amqp://h"),), HERE) for name in [*names, "b", "c"]}
    state = exchanges(topic("x"))
    before = solve(book(policy("p", "^b$", choice=Choice.PATTERN), upstreams=upstreams), state)
    after = again(book(policy("p", "^(a|aa)+$|^c", choice=Choice.PATTERN), upstreams=upstreams), state, before)
    assert {link.upstream for link in after.links} == {"b"}
    [problem] = after.unjudged
    assert "its federation-upstream-pattern can't be used: it takes too long" in problem.message


def test_many_names_and_a_slow_pattern_do_not_add_up() -> None:
    state = exchanges(*(topic(f"{'a' * 100}{number}!") for number in range(5_000)))
    slow = [policy(f"p{number}", pattern=f"^(a|aa)+{number}$") for number in range(20)]
    began = time.process_time()
    solve(book(*slow), state)
    assert time.process_time() - began < 3


def test_an_exchange_that_can_not_be_represented_is_a_link_that_says_so() -> None:
    [link] = solve(
        book(policy("p"), upstreams={"a": upstream("a")}),
        exchanges(Exchange("x", "topic", unusable="is nested deeper than 64 levels")),
    ).links
    assert link.problem is not None
    assert "exchange 'x' in vhost '/' can't be federated: it is nested deeper" in link.problem
