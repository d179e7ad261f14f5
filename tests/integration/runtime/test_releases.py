"""`plan` between brokers of different releases, definitions in the global parameter, which needs no plugin."""

from pathlib import Path

import pytest

from agent.core.links.plan import Outlook
from tests.conftest import Borrowed
from tests.integration.runtime.planning import FEDERATE, Naming, Pair, snapshot, told, wait_for_consumer
from tests.lab.node import NATIVE_PLUGINS, Node

pytestmark = pytest.mark.versions
PAIRS = [(None, "sid"), ("trixie", None), ("sid", "trixie")]  # each release downstream and upstream


@pytest.fixture(params=PAIRS, ids=lambda pair: "{} from {}".format(*(each or "this machine's" for each in pair)))
def releases(request: pytest.FixtureRequest, borrowed: Borrowed) -> tuple[Node, Node]:
    """Downstream and upstream."""
    here, there = request.param
    return borrowed(release=here), borrowed(release=there)


async def test_a_fresh_upstream_of_another_release(tmp_path: Path, releases: tuple[Node, Node], name: Naming) -> None:
    here, there = releases
    vhost = name("vhost")
    with here.admin.temporary_vhost(vhost), there.admin.temporary_vhost(vhost):
        pair = Pair(tmp_path, here, there, vhost)
        here.admin.exchange(vhost, "x")
        here.admin.queue(vhost, "q", arguments={"x-queue-type": "quorum"})
        here.admin.bind(vhost, "x", "q", "key")
        here.admin.global_parameter("federation-agent", {"vhosts": {vhost: {**pair.origin(), **FEDERATE}}})
        before = snapshot(here, vhost), snapshot(there, vhost)
        try:
            found = await pair.plan({})
            after = snapshot(here, vhost), snapshot(there, vhost)
        finally:
            here.admin.delete("global-parameters", "federation-agent")
    links = {planned.link.name: planned for planned in found.plan.links}
    assert set(links) == {"x"}
    assert links["x"].outlook is Outlook.RUN, links["x"].reason
    assert told(links["x"].actions) == [
        ("create", "exchange", "x"),
        ("create", "queue", pair.queue),
        ("create", "exchange", f"{pair.queue} A"),
        ("bind", "binding", "key"),
        ("create", "exchange", f"federation-agent: notices when x is deleted ({pair.queue})"),
    ]
    assert found.reading.version == here.admin.get("overview")["rabbitmq_version"]
    assert after == before


async def test_the_native_plugin_of_another_release_is_left_to_its_link(pair: Pair, borrowed: Borrowed) -> None:
    node = borrowed(release="sid", plugins=NATIVE_PLUGINS)
    native = Pair(pair.directory, node, pair.there, pair.vhost)
    with node.admin.temporary_vhost(pair.vhost):
        node.admin.exchange(pair.vhost, "x")
        node.admin.parameter("federation-upstream", pair.vhost, "theirs", {"uri": pair.there.uri(pair.vhost)})
        node.admin.policy(pair.vhost, "p", "^x$", definition={"federation-upstream": "theirs"}, apply_to="exchanges")
        wait_for_consumer(pair.there, pair.vhost, native.queue)
        planned = await native.plan_link({})
    assert (planned.outlook, planned.actions) == (Outlook.STANDBY, ())
    assert (planned.link.upstream, planned.link.policy) == ("theirs", "p")
