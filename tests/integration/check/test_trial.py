"""`check --deliver`: a trial through a running agent, and which links are left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.check import trial
from agent.check.configuration import check
from agent.check.findings import Finding, FindingLevel, Topic
from agent.check.trial import try_links
from agent.core.addresses import uri
from agent.definitions.sources.load import load_configuration
from tests.acceptance.command import federation_agent
from tests.integration.check.pair import ORIGIN, Pair, memory_alarm, only
from tests.lab.lab import Lab
from tests.lab.waiting import DEADLINE, eventually

Running = Callable[[Pair], dict[str, Any]]
SOON = 6.0  # seconds that a trial waits for what never comes


@pytest.fixture
def running(lab: Lab) -> Iterator[Running]:
    """Starts an agent with a pair's configuration, and waits until its links run; the section of the agent itself."""
    started = []

    def start(pair: Pair) -> dict[str, Any]:
        section = {"agent": {"http": {"listen": f"127.0.0.1:{lab.ports.take()}"}}}
        path = pair.write(pair.upstream(), **section)
        log = pair.directory / "agent.log"
        started.append(lab.agents.start(["run", "-c", path], output=log))
        eventually(lambda: '"status": "running"' in log.read_text(), what="the link runs")
        return section

    yield start
    for each in started:
        each.send_signal(9)
        each.wait(DEADLINE)


async def deliver(pair: Pair, user: str = "guest", password: str = "guest") -> list[Finding]:
    configuration = load_configuration(str(pair.directory / "agent.yaml"), environment={})
    apis = {ORIGIN: [uri.parse_http(pair.there.management_uri(user, password))]}
    found = await check(configuration, apis=apis, trial=try_links)
    return [each for each in found.findings if each.topic is Topic.DELIVERY]


def objects(pair: Pair) -> list[object]:
    return [
        sorted(str(each.get("name", each)) for each in node.admin.get(kind, pair.vhost))
        for node in (pair.here, pair.there)
        for kind in ("exchanges", "queues", "bindings")
    ]


async def test_a_message_is_published_received_and_nothing_left(pair: Pair, running: Running) -> None:
    """Also by the command. A link that is paused isn't tried: the agent that runs says so, before anything is waited
    for."""
    url = f"http://{running(pair)['agent']['http']['listen']}"
    eventually(lambda: "key" in str(pair.there.admin.get("bindings", pair.vhost)), what="the binding is upstream")
    # The exchange that notices deletions comes some seconds later, which may be in the midst of the trial.
    ours = "federation-agent: "
    eventually(lambda: ours in str(pair.there.admin.get("bindings", pair.vhost)), what="all is there")
    before = objects(pair)
    [found] = await deliver(pair)
    assert found.level is FindingLevel.NOTE, found
    assert "a message arrived after " in found.message
    assert f"by {pair.there.cluster_name} (amqp://127.0.0.1:{pair.there.amqp_port}/{pair.vhost})" in found.message
    assert objects(pair) == before
    assert pair.here.admin.get("queues", pair.vhost, "q").get("messages", 0) == 0

    by_command = ("check", "-c", pair.directory / "agent.yaml", "--api", f"origin={pair.there.management_uri()}")
    done = federation_agent(*by_command, "--deliver")
    assert done.status == 0, done.out + done.err
    assert "cancelled" not in done.err
    assert "note delivery: " in done.out

    paused = federation_agent("pause", "--all", "--url", url)
    assert paused.status == 0, paused
    link = paused.out.split()[0]
    eventually(lambda: "paused" in federation_agent("links", "--url", url).out, what="it is paused")
    done = federation_agent(*by_command, "--deliver")
    assert f"not tried: it is paused: run `federation-agent resume {link}` first" in done.out
    assert done.status == 0


async def test_links_whose_messages_users_could_get_are_left_out(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the trial of one that no agent runs fails in its time."""
    monkeypatch.setattr(trial, "WITHIN", SOON)
    for node, vhost in ((pair.here, pair.vhost), (pair.there, pair.vhost)):
        node.admin.exchange(vhost, "x.all")
        node.admin.exchange(vhost, "x.fanout", "fanout")
        node.admin.exchange(vhost, "x.other", arguments={"alternate-exchange": "amq.fanout"})
    pair.here.admin.bind(pair.vhost, "x.all", "q", "#")
    pair.write(pair.upstream())
    by_label = {each.links[0].partition("/")[2]: each for each in await deliver(pair)}
    assert "'q' is bound to exchange 'x.all' for every routing key" in by_label["x.all"].message
    assert "of a fanout exchange every queue" in by_label["x.fanout"].message
    assert "has an alternate exchange" in by_label["x.other"].message
    assert (by_label["x"].level, by_label["x"].message) == (FindingLevel.ERROR, "its binding isn't upstream after 6 s")
    assert by_label["x"].fix.startswith("`federation-agent links` shows whether the link is paused, and whether ")


async def test_an_alarm_downstream_stops_links_and_one_upstream_its_publishers(pair: Pair, running: Running) -> None:
    """The check finds either, and the trial names it instead of what it waited for. Over AMQP neither shows: brokers
    report an alarm only to who publishes."""
    own = running(pair)
    with memory_alarm(pair.here):
        found = only(await pair.check(**own), Topic.ALARM, FindingLevel.ERROR)
        assert re.match(r"memory alarm on \S+: the broker accepts no messages, so links to it", found.message)
        assert "vm_memory_high_watermark" in found.fix
        assert found.links == (f"{pair.vhost}/x",)
        check_named(await deliver(pair), "downstream")
    with memory_alarm(pair.there):
        found = only(await pair.check(**own), Topic.ALARM)
        assert "nothing new arrives there" in found.message
        check_named(await deliver(pair), "upstream")
        found_without = await pair.check(with_api=False, **own)
        [unseen] = [each for each in found_without if "alarm can't be seen" in each.message]
        assert f"upstream origin 127.0.0.1:{pair.there.amqp_port}" in unseen.message
        of_its_own = pair.upstream(management=pair.there.management_uri())
        assert only(await pair.check(of_its_own, with_api=False, **own), Topic.ALARM).message == found.message


def check_named(delivered: list[Finding], side: str) -> None:
    [found] = delivered
    assert found.level is FindingLevel.ERROR
    assert found.message.startswith(f"no message gets through: {side} has a memory alarm on ")
    assert "vm_memory_high_watermark" in found.fix


@pytest.mark.thorough
async def test_an_alarm_that_nobody_may_see_is_suspected(
    pair: Pair, running: Running, name: Callable[[str], str]
) -> None:
    running(pair)
    user = name("not-monitoring")
    pair.there.admin.user(user, "password", tags="management")
    pair.there.admin.permissions(pair.vhost, user)
    with memory_alarm(pair.there):
        [found] = await deliver(pair, user=user, password="password")
    assert found.level is FindingLevel.ERROR
    assert found.message == "the upstream didn't confirm the message within 20 s"
    assert "rabbitmq-diagnostics alarms" in found.fix


async def test_a_link_whose_queue_has_a_dead_letter_exchange_is_left_out(pair: Pair, running: Running) -> None:
    pair.there.admin.queue(pair.vhost, "a user's")
    pair.there.admin.policy(
        pair.vhost, "letters", ".*", definition={"dead-letter-exchange": "amq.fanout"}, apply_to="queues"
    )
    pair.there.admin.bind(pair.vhost, "amq.fanout", "a user's", "")
    running(pair)
    [found] = await deliver(pair)
    assert found.level is FindingLevel.NOTE
    assert "has a dead-letter exchange by policy 'letters'" in found.message
