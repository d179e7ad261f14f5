"""What a standby needs is judged before its agent runs, and `validate` and `plan` say what it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.check.findings import Finding, FindingLevel, Topic
from tests.acceptance.command import federation_agent
from tests.integration.check.pair import ORIGIN, PASSWORD, Pair, problems
from tests.lab.node import Node

DOES = "standby of upstream 'origin': what is missing here of vhost "


def sections(pair: Pair, *, here: str = "", there: str = "", **more: Any) -> dict[str, Any]:
    """`here` and `there` are logins of both sides' HTTP APIs, instead of the administrator's."""
    origin = {
        "uri": pair.there.uri("")[: -len("/")],
        "management": api(pair.there, there),
        "probe": "10s",
    }
    downstream = {"uri": pair.here.uri("/"), "management": api(pair.here, here)}
    standby = {"of": ORIGIN, "vhosts": {pair.vhost: None}, "keep": "1h"}
    return {"downstream": downstream, "upstreams": {ORIGIN: origin}, "standby": standby} | more


def api(node: Node, user: str) -> str:
    own = node.management_uri()
    return f"http://{user}:{PASSWORD}@{own.rpartition('@')[2]}" if user else own


def user(node: Node, pair: Pair, name: str, *tags: str, **granted: str) -> str:
    pair.user(node, name, **granted)
    node.admin.user(name, PASSWORD, ",".join(tags))
    return name


async def found(pair: Pair, **more: Any) -> list[Finding]:
    return await pair.check({}, with_api=False, **sections(pair, **more))


async def test_one_that_has_all_it_needs(pair: Pair) -> None:
    findings = await found(pair)
    assert problems(findings) == []
    [note] = [each for each in findings if each.message.startswith(DOES)]
    assert note.message.endswith("; 1 exchange or queue to copy now")


async def test_tags_that_are_missing_at_either_side(pair: Pair, name: Any) -> None:
    here, there = (
        user(pair.here, pair, name("here"), "monitoring"),
        user(pair.there, pair, name("there"), "policymaker"),
    )
    lacking = [each for each in problems(await found(pair, here=here, there=there)) if "tags" in each.message]
    assert [(each.level, each.topic) for each in lacking] == [(FindingLevel.ERROR, Topic.PERMISSIONS)] * 2
    assert {each.fix for each in lacking} == {
        f"rabbitmqctl set_user_tags {here} monitoring policymaker",
        f"rabbitmqctl set_user_tags {there} monitoring policymaker",
    }


async def test_a_queue_that_can_not_be_copied_or_emptied(pair: Pair, name: Any) -> None:
    pair.there.admin.queue(pair.vhost, "orders")
    limited = user(pair.here, pair, name("user"), "administrator", configure="^(x|federation.*)$", read="^x$")
    uri = pair.here.uri(pair.vhost, limited, PASSWORD)
    downstream = {"uri": uri, "management": api(pair.here, limited)}
    texts = " ".join(each.message for each in problems(await found(pair, downstream=downstream)))
    assert "configure on 'orders' (copying it and its bindings)" in texts
    assert "read on 'orders' (taking copies out)" in texts


async def test_what_only_a_promotion_lacks(pair: Pair, name: Any) -> None:
    """Links run without, so these are warnings, each with what to do."""
    pair.there.admin.queue(pair.vhost, "orders")
    of_links = {"configure": "^(x|orders|federation.*trimming)$", "write": "^x$"}
    here = pair.user(pair.here, name("here"), **of_links)
    there = pair.user(pair.there, name("there"), read="^(x|federation.*)$")
    downstream = {"uri": here, "management": api(pair.here, "")}
    of_source = {"uri": there, "management": api(pair.there, ""), "probe": "10s"}
    lacking = [
        each
        for each in problems(await found(pair, downstream=downstream, upstreams={ORIGIN: of_source}))
        if each.topic is Topic.PERMISSIONS and each.level is FindingLevel.WARNING
    ]
    texts = {each.where.partition(" ")[0]: (each.message, each.fix) for each in lacking}
    assert "read on 'orders' (a switchover moves what it holds)" in texts["upstream"][0]
    assert "write on 'amq.default' (a switchover moves what the source still holds)" in texts["downstream"][0]
    assert "configure on 'federation-agent: promoting' (that only one command promotes)" in texts["downstream"][0]
    assert "rabbitmqctl set_permissions" in texts["upstream"][1] and "orders" in texts["upstream"][1]
    assert "amq" in texts["downstream"][1] and "promoting" in texts["downstream"][1]


async def test_a_vhost_that_has_to_be_made(pair: Pair, name: Any) -> None:
    other = name("other")
    here = user(pair.here, pair, name("user"), "monitoring", "policymaker")
    standby = {"of": ORIGIN, "vhosts": {other: None}, "keep": "1h"}
    with pair.there.admin.temporary_vhost(other):
        [absent] = [
            each for each in problems(await found(pair, here=here, standby=standby)) if "no vhost" in each.message
        ]
    assert absent.fix == f"rabbitmqctl add_vhost {other}"


def test_validate_and_plan_say_what_it_does(pair: Pair) -> None:
    path: Path = pair.write({}, **sections(pair))
    for command in ("validate", "plan"):
        done = federation_agent(command, "-c", path)
        assert (
            f"{DOES}{pair.vhost!r} is copied, exchanges get links, and what the source consumed 30m ago and" in done.out
        )


async def test_a_vhost_that_the_agent_makes(pair: Pair, name: Any) -> None:
    """Links have its permissions only with the user of the HTTP API, as who makes a vhost gets them."""
    other = name("other")
    standby = {"of": ORIGIN, "vhosts": {other: None}, "keep": "1h"}
    pair.user(pair.here, linking := name("linking"))
    downstream = {"uri": pair.here.uri("/", linking, PASSWORD), "management": api(pair.here, "")}
    pair.here.admin.permissions("/", linking)
    with pair.there.admin.temporary_vhost(other):
        pair.there.admin.queue(other, "orders")
        every = await found(pair, standby=standby)
        others = problems(await found(pair, standby=standby, downstream=downstream))
    assert problems(every) == []
    assert f"there is no vhost '{other}' yet: the agent makes it when it runs" in [each.message for each in every]
    [absent] = [each for each in others if each.topic is Topic.CONNECTION]
    assert absent.fix.startswith(f"rabbitmqctl add_vhost {other} && rabbitmqctl set_permissions -p {other} {linking} ")
