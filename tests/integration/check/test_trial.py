"""`check --deliver`: a trial through a running agent, and which links are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import yaml

from agent.check.configuration import check
from agent.check.findings import Finding, FindingLevel, Topic
from agent.check.trial import try_links
from agent.core.addresses import uri
from agent.definitions.sources.load import load_configuration
from tests.acceptance.command import federation_agent
from tests.integration.check.pair import ORIGIN, Pair, memory_alarm
from tests.lab.lab import Lab
from tests.lab.waiting import DEADLINE, eventually
from tests.tiers import thorough

Running = Callable[[Pair], None]


@pytest.fixture
def running(lab: Lab) -> Iterator[Running]:
    """Starts an agent with a pair's configuration, and waits until its links run."""
    started = []

    def start(pair: Pair) -> None:
        path = pair.write(pair.upstream(), agent={"http": {"listen": f"127.0.0.1:{lab.ports.take()}"}})
        log = pair.directory / "agent.log"
        started.append(lab.agents.start(["run", "-c", path], output=log))
        eventually(lambda: '"status": "running"' in log.read_text(), what="the link runs")

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
    running(pair)
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


async def test_links_whose_messages_users_could_get_are_left_out(pair: Pair) -> None:
    """And the trial of one that no agent runs fails in its time."""
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
    assert (by_label["x"].level, by_label["x"].message) == (FindingLevel.ERROR, "its binding isn't upstream after 20 s")
    assert by_label["x"].fix.startswith("`federation-agent links` shows whether the link is paused, and whether ")


@pytest.mark.parametrize("side", [thorough("upstream"), "downstream"])
async def test_an_alarm_is_named_instead_of_what_was_waited_for(pair: Pair, running: Running, side: str) -> None:
    running(pair)
    with memory_alarm(pair.here if side == "downstream" else pair.there):
        [found] = await deliver(pair)
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


def test_the_command(pair: Pair, running: Running) -> None:
    running(pair)
    api = f"origin={pair.there.management_uri()}"
    done = federation_agent("check", "-c", pair.directory / "agent.yaml", "--api", api, "--deliver")
    assert done.status == 0, done.out + done.err
    assert "cancelled" not in done.err
    assert "note delivery: " in done.out


def test_a_paused_link_is_not_tried(pair: Pair, running: Running) -> None:
    """The agent that runs says so, before anything is waited for."""
    running(pair)
    url = yaml.safe_load((pair.directory / "agent.yaml").read_text())["agent"]["http"]["listen"]
    paused = federation_agent("pause", "--all", "--url", f"http://{url}")
    assert paused.status == 0, paused
    link = paused.out.split()[0]
    eventually(lambda: "paused" in federation_agent("links", "--url", f"http://{url}").out, what="it is paused")
    api = f"origin={pair.there.management_uri()}"
    done = federation_agent("check", "-c", pair.directory / "agent.yaml", "--api", api, "--deliver")
    assert f"not tried: it is paused: run `federation-agent resume {link}` first" in done.out
    assert done.status == 0


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
