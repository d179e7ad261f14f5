from __future__ import annotations

from dataclasses import replace

from agent.core import fields
from agent.core.links import plan
from agent.core.links.plan import Action, Downstream, Outlook, Plan, RunningLink, Sight
from agent.core.links.upstream_steps import QueueSeen, Seen, Verb, upstream_queue_name
from agent.core.model import (
    AddressDestination,
    AddressSource,
    Binding,
    DeclaredExchange,
    Exchange,
    ExchangeDestination,
    ExchangeSource,
    LinkKind,
    LinkSettings,
    NativeLink,
    Queue,
    QueueDestination,
    QueueSource,
    QueueType,
)
from agent.core.rules.hops import Site
from agent.errors import Failure, Place
from tests.unit.core.some_links import BROKER, queue_link, shovel_link
from tests.unit.core.some_links import exchange_link as link

UP = Site("up", "/")
CANARY = "federation-agent: notices when x is deleted (federation: x -> down)"


def downstream(*bindings: Binding, native: frozenset[NativeLink] = frozenset()) -> Downstream:
    return Downstream("http://d:15672", "down", {("/", "x"): bindings}, native)


def told(actions: tuple[Action, ...]) -> list[tuple[Verb, str, str]]:
    return [(action.verb, action.kind, action.name) for action in actions]


def test_on_a_fresh_upstream_everything_is_created() -> None:
    planned = plan.plan_link(link(), Sight(BROKER, UP), downstream(Binding("a", (), "q"), Binding("a", (), "r")))
    assert (planned.outlook, planned.bindings) == (Outlook.RUN, 1)
    assert told(planned.actions) == [
        (Verb.CREATE, "exchange", "x"),
        (Verb.CREATE, "queue", "federation: x -> down"),
        (Verb.CREATE, "exchange", "federation: x -> down A"),
        (Verb.BIND, "binding", "a"),
        (Verb.CREATE, "exchange", CANARY),
    ]


def test_the_plugins_queue_is_kept_and_the_other_letter_built() -> None:
    seen = Sight(BROKER, UP, Seen(True, QueueSeen(7, 0), ("A",), canary_exists=True))
    planned = plan.plan_link(link(), seen, downstream())
    assert told(planned.actions) == [
        (Verb.KEEP, "exchange", "x"),
        (Verb.KEEP, "queue", "federation: x -> down"),
        (Verb.CREATE, "exchange", "federation: x -> down B"),
        (Verb.DELETE, "exchange", "federation: x -> down A"),
        (Verb.KEEP, "exchange", CANARY),
    ]
    assert "7 messages" in planned.actions[1].why


def test_what_the_agent_holds_unacknowledged_is_counted_and_what_is_paused_changes_nothing() -> None:
    running = RunningLink("00000000", "exchange", "/", "x", "origin", 1600, is_consuming=True, is_paused=False)
    seen = Sight(BROKER, UP, Seen(True, QueueSeen(0, 1), ("A",)), is_served_by_agent=True, running=running)
    planned = plan.plan_link(link(), seen, downstream())
    assert planned.actions[1].why.startswith("exists with 0 messages and 1,600 that the agent has taken and not ack")
    assert (len(planned.changes), Plan(links=(planned,)).has_changes) == (3, True)
    paused = replace(seen, running=replace(running, is_paused=True, is_consuming=False))
    planned = plan.plan_link(link(), paused, downstream())
    assert (planned.is_paused, planned.outlook, planned.changes) == (True, Outlook.RUN, ())
    assert not Plan(links=(planned,)).has_changes
    assert Plan(ended=(running,)).has_changes


def test_an_interrupted_rebuild_is_cleared_away() -> None:
    planned = plan.plan_link(link(), Sight(BROKER, UP, Seen(True, QueueSeen(0, 0), ("A", "B"))), downstream())
    assert told(planned.actions)[2:] == [
        (Verb.KEEP, "exchange", "federation: x -> down A"),
        (Verb.DELETE, "exchange", "federation: x -> down B"),
        (Verb.CREATE, "exchange", "federation: x -> down B"),
        (Verb.DELETE, "exchange", "federation: x -> down A"),
        (Verb.CREATE, "exchange", CANARY),
    ]


def test_an_exchange_that_nobody_can_delete_gets_no_canary() -> None:
    planned = plan.plan_link(link(remote_name="amq.topic"), Sight(BROKER, UP), downstream())
    assert [name for _, _, name in told(planned.actions) if name.startswith("federation-agent: ")] == []


def test_queue_names_tell_vhosts_and_exchanges_that_differ() -> None:
    assert upstream_queue_name(link(), "/", "down") == "federation: x -> down"
    assert upstream_queue_name(link(remote_name="y"), "/", "down") == "federation: y -> down:x"
    assert upstream_queue_name(link(), "other", "down") == "federation: x -> down:/:x"


def test_the_agent_stands_aside_for_who_serves_the_link() -> None:
    native = downstream(
        native=frozenset({(LinkKind.EXCHANGE, "/", "x", "origin"), (LinkKind.QUEUE, "/", "y", "origin")})
    )
    assert plan.plan_link(link(), Sight(BROKER, UP), native).outlook is Outlook.STANDBY
    served = plan.plan_link(link(), Sight(BROKER, UP, Seen(queue=QueueSeen(0, 1))), downstream())
    assert (served.outlook, served.actions) == (Outlook.STANDBY, ())


def test_what_cannot_be_seen_or_has_to_be_mended_is_said() -> None:
    away = plan.plan_link(link(), Sight(BROKER, error="connection refused by h:5672"), downstream())
    assert (away.outlook, away.reason) == (Outlook.BACKOFF, "connection refused by h:5672")
    refused = plan.plan_link(
        link(), Sight(BROKER, error="login refused", failure=Failure(is_permanent=True)), downstream()
    )
    assert refused.outlook is Outlook.INVALID
    assert plan.plan_link(link(problem="mend it"), Sight(BROKER, UP), downstream()).reason == "mend it"


def test_forward_unrouted_asks_for_everything_besides() -> None:
    wide = link(settings=LinkSettings(forward_unrouted=True))
    planned = plan.plan_link(wide, Sight(BROKER, UP), downstream(Binding("a", (), "q")))
    assert [action.name for action in planned.actions if action.verb is Verb.BIND] == ["#", "a"]


def test_queue_links_declare_what_is_missing_and_delete_nothing() -> None:
    of_queue = queue_link()
    assert told(plan.plan_link(of_queue, Sight(BROKER, UP), downstream()).actions) == [(Verb.CREATE, "queue", "x")]
    stands = plan.plan_link(of_queue, Sight(BROKER, UP, Seen(queue=QueueSeen(3, 1))), downstream())
    assert told(stands.actions) == [(Verb.KEEP, "queue", "x")]


def test_a_shovel_declares_its_queue_unless_that_is_predeclared() -> None:
    shovel, predeclared = shovel_link(QueueSource("q")), shovel_link(QueueSource("q", is_predeclared=True))
    missing, exists = Sight(BROKER, UP), Sight(BROKER, UP, Seen(queue=QueueSeen(3, 1)))
    assert told(plan.plan_link(shovel, missing, downstream()).actions) == [(Verb.CREATE, "queue", "q")]
    assert told(plan.plan_link(predeclared, exists, downstream()).actions) == [(Verb.KEEP, "queue", "q")]
    refused = plan.plan_link(predeclared, missing, downstream())
    assert (refused.outlook, refused.reason.partition(" is")[0]) == (Outlook.BACKOFF, "queue 'q'")


def test_a_shovel_from_a_stream_has_a_queue_for_its_place() -> None:
    shovel = shovel_link(QueueSource("q", (("x-queue-type", fields.text("stream")),)))
    place = "federation-agent: offset of //s -> down"
    missing = plan.plan_link(shovel, Sight(BROKER, UP), downstream()).actions
    assert told(missing) == [(Verb.CREATE, "queue", "q"), (Verb.CREATE, "queue", place)]
    assert dict(missing[1].arguments) == {"x-queue-type": fields.text("quorum"), "x-max-length": fields.long(1)}
    seen = Seen(queue=QueueSeen(3, 1), remembers_offset=True)
    found = plan.plan_link(shovel, Sight(BROKER, UP, seen), downstream()).actions
    assert told(found) == [(Verb.KEEP, "queue", "q"), (Verb.KEEP, "queue", place)]


def test_a_shovel_from_an_exchange_makes_a_queue_of_its_own() -> None:
    shovel = shovel_link(ExchangeSource("x", "k"))
    planned = plan.plan_link(shovel, Sight(BROKER, UP, Seen(exchange_exists=True)), downstream())
    assert (planned.outlook, planned.actions) == (Outlook.RUN, ())
    waits = plan.plan_link(shovel, Sight(BROKER, UP), downstream())
    reason = f"exchange 'x' is missing at the source, {BROKER}: declare it there, or change src-exchange"
    assert (waits.outlook, waits.reason) == (Outlook.BACKOFF, reason)


def test_a_shovels_destination_is_declared_or_waited_for() -> None:
    def planned(destination: QueueDestination | ExchangeDestination, seen: Sight) -> plan.PlannedLink:
        link = shovel_link()
        given = replace(link, shovel=replace(link.shovel, destination=destination))
        return plan.plan_link(given, Sight(BROKER, UP, Seen(queue=QueueSeen(0, 0)), destination=seen), downstream())

    missing, queue = Sight(BROKER, UP), QueueDestination("d")
    assert told(planned(queue, missing).actions) == [(Verb.KEEP, "queue", "q"), (Verb.CREATE, "queue", "d")]
    waits = planned(replace(queue, is_predeclared=True), missing)
    assert (waits.outlook, waits.reason.split(", and ")[1][:15]) == (Outlook.BACKOFF, "dest-predeclare")
    assert planned(ExchangeDestination("x"), missing).outlook is Outlook.BACKOFF
    assert planned(ExchangeDestination("x"), Sight(BROKER, UP, Seen(exchange_exists=True))).outlook is Outlook.RUN
    assert planned(ExchangeDestination(routing_key="k"), missing).outlook is Outlook.RUN
    refused = planned(queue, Sight(BROKER, error="login refused", failure=Failure(is_permanent=True)))
    assert (refused.outlook, refused.reason) == (Outlook.INVALID, "login refused")


def test_a_shovel_between_addresses_changes_nothing_anywhere() -> None:
    link = shovel_link(AddressSource("/queues/a"))
    given = replace(link, shovel=replace(link.shovel, destination=AddressDestination("/queues/b")))
    seen = Sight(BROKER, UP, destination=Sight("amqp://there:5672", UP))
    planned = plan.plan_link(given, seen, downstream())
    assert (planned.outlook, planned.reason, planned.actions) == (Outlook.RUN, "", ())
    refused = plan.plan_link(given, replace(seen, error="attaching to '/queues/a': no queue"), downstream())
    assert (refused.outlook, refused.reason) == (Outlook.BACKOFF, "attaching to '/queues/a': no queue")


def test_a_queue_at_an_address_is_declared_where_its_broker_does_that() -> None:
    link = shovel_link(AddressSource("/queues/a%20b"))
    given = replace(link, shovel=replace(link.shovel, destination=AddressDestination("/queues/c")))
    exists = Sight(BROKER, UP, Seen(queue=QueueSeen(3, 0)))
    planned = plan.plan_link(given, replace(exists, destination=Sight(BROKER, UP, declares_queue=True)), downstream())
    assert told(planned.actions) == [(Verb.KEEP, "queue", "a b"), (Verb.CREATE, "queue", "c")]
    assert planned.actions[0].why == "exists with 3 messages"


def test_what_is_missing_at_a_shovels_destination_is_said_of_that_broker() -> None:
    there = "amqp://there:5672"
    link = shovel_link(QueueSource("q", is_predeclared=True))
    given = replace(link, shovel=replace(link.shovel, destination=ExchangeDestination("x")))
    seen = Sight(BROKER, UP, Seen(queue=QueueSeen(0, 0)), destination=Sight(there, UP))
    reason = f"exchange 'x' is missing at the destination, {there}: declare it there, or change dest-exchange"
    waits = plan.plan_link(given, seen, downstream())
    assert (waits.broker, waits.reason) == (there, reason)
    refused = plan.plan_link(given, replace(seen, destination=Sight(there, error="login refused")), downstream())
    assert refused.broker == there
    both = plan.plan_link(given, replace(seen, seen=Seen()), downstream())
    assert both.broker == BROKER
    assert both.reason.endswith(f"; {reason}")


def test_exchanges_of_the_configuration() -> None:
    place = Place("agent.yaml", 3, 1)
    declared = [DeclaredExchange(Exchange(name, "topic"), place) for name in ("new", "same", "other")]
    standing = {"same": Exchange("same", "topic"), "other": Exchange("other", "direct", durable=False)}
    actions = plan.plan_declarations(downstream(), "/", declared, standing)
    assert [action.verb for action in actions] == [Verb.CREATE, Verb.KEEP, Verb.KEEP]
    assert "agent.yaml:3:1" in actions[0].why
    assert "its type, durable differ" in actions[2].why


def test_a_queue_upstream_is_declared_as_downstream_or_kept() -> None:
    queue = Queue("x", QueueType.QUORUM, arguments=(("x-max-length", fields.long(5)),))
    made = replace(queue_link(), queue=queue)
    [created] = plan.plan_link(made, Sight(BROKER, UP), downstream()).actions
    assert (created.verb, created.kind, created.name) == (Verb.CREATE, "queue", "x")
    assert created.arguments == (("x-max-length", fields.long(5)), ("x-queue-type", fields.text("quorum")))
    [kept] = plan.plan_link(made, Sight(BROKER, UP, Seen(queue=QueueSeen(3, 2))), downstream()).actions
    assert (kept.verb, kept.why) == (Verb.KEEP, "exists with 3 messages; queue links delete nothing upstream")


def test_a_missing_queue_whose_arguments_nobody_can_repeat() -> None:
    made = replace(queue_link(), queue=Queue("x", unusable="has numbers that AMQP lacks"))
    planned = plan.plan_link(made, Sight(BROKER, UP), downstream())
    assert planned.outlook is Outlook.INVALID
    assert "declare it upstream" in planned.reason
    assert plan.plan_link(made, Sight(BROKER, UP, Seen(queue=QueueSeen(0, 0))), downstream()).outlook is Outlook.RUN
