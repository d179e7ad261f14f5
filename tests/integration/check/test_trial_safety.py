"""Who could get a trial's message, by answers of an HTTP API that change meanwhile."""

from __future__ import annotations

from functools import partial
from typing import Any

from agent.check.context import Endpoint, LinkEnds
from agent.check.findings import FindingLevel
from agent.check.http_api import BrokerApi
from agent.check.policies import PolicyTarget
from agent.check.trial import Trial, TrialExchange, deliver_one
from agent.core.addresses.uri import parse
from agent.core.links.plan import Outlook, PlannedLink
from tests.integration.check.some_brokers import Answers, amqp_broker, api
from tests.unit.core.some_links import exchange_link

KEY = "the-key-of-a-trial"


def row(destination: str, key: str) -> dict[str, Any]:
    shared = {"source": "x", "destination_type": "queue", "arguments": {}, "vhost": "/", "properties_key": key}
    return shared | {"destination": destination, "routing_key": key}


def a_broker(**rows: list[dict[str, Any]]) -> Answers:
    exchange = {"name": "x", "type": "topic", "durable": True, "auto_delete": False, "internal": False, "arguments": {}}
    return Answers(**{"exchanges": [exchange | {"vhost": "/"}], "bindings": []} | rows)


def a_trial(upstream: BrokerApi, downstream: BrokerApi, *ports: int) -> Trial:
    planned = PlannedLink(exchange_link("x"), Outlook.RUN, "", "")
    from_, to = (parse(f"amqp://127.0.0.1:{port}/%2f") for port in ports or (1, 1))
    return Trial(
        LinkEnds(planned, Endpoint("upstream a", "/", ()), Endpoint("here", "/", ())),
        KEY,
        TrialExchange("upstream", upstream, from_, "/", "x", "topic"),
        TrialExchange("downstream", downstream, to, "/", "x", "topic"),
    )


async def test_a_binding_that_was_made_meanwhile_is_seen_but_not_the_trials_own() -> None:
    there = a_broker()
    async with api(there) as upstream, api(a_broker()) as downstream:
        trial = a_trial(upstream, downstream)
        assert await trial.danger() is None
        there.rows["bindings"] = [row("the trial's", KEY)]
        assert await trial.danger_now() is None
        there.rows["bindings"].append(row("a user's", "#"))
        danger = await trial.danger_now()
    assert danger == "upstream, \"a user's\" is bound to exchange 'x' for every routing key"


async def test_a_queue_whose_messages_are_dead_lettered_is_not_used() -> None:
    policy = {"vhost": "/", "name": "all", "pattern": ".*", "apply-to": "queues", "priority": 0}
    there = a_broker(policies=[policy | {"definition": {"dead-letter-exchange": "dlx"}}])
    async with api(there) as upstream:
        danger = await TrialExchange(
            "upstream", upstream, parse("amqp://h"), "/", "x", "topic", PolicyTarget("federation: x -> y")
        ).danger(KEY)
    assert danger is not None
    assert "'federation: x -> y' has a dead-letter exchange by policy 'all'" in danger


async def test_an_api_that_does_not_answer_is_asked_once() -> None:
    silent = Answers(silent=True)
    async with api(silent, patience=0.3) as asked:
        for vhost in map(str, range(20)):
            assert await asked.policies(vhost) is None
        assert len(asked.failures) == 20
    assert silent.asked <= 3  # one question, and its attempts


async def test_a_connection_that_is_lost_during_a_trial_is_a_finding() -> None:
    there = a_broker()
    bound = partial(there.rows.__setitem__, "bindings", [row("the trial's", KEY)])
    async with (
        api(there) as upstream,
        api(a_broker()) as downstream,
        amqp_broker(hangs_up=bound) as source,
        amqp_broker() as destination,
    ):
        found = await deliver_one(a_trial(upstream, downstream, source, destination))
    assert found.level is FindingLevel.ERROR
    assert "the trial failed: " in found.message
