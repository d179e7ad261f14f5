"""From the native plugin to the agent: definitions, queue and backlog are taken over, where the plugin leaves them.

Seen on 3.10.8, 4.0 and 4.3: `rabbitmq-plugins disable` on a running broker deletes the upstream queue with its backlog,
and from 4.3 on so does a stop. What leaves them is `resource-cleanup-mode: never`, which 3.10 doesn't know, or on
releases before 4.3 to stop the broker and disable the plugin with `--offline`.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.core.links.plan import Outlook
from tests.conftest import Borrowed
from tests.integration.runtime.planning import Pair, messages_in, told, wait_for_consumer
from tests.lab.admin import AdminError
from tests.lab.node import NATIVE_PLUGINS, Node
from tests.lab.user_program import publish_async
from tests.lab.waiting import eventually


def disable_offline(node: Node) -> None:
    node.stop()
    node.run("rabbitmq-plugins", "--offline", "disable", "rabbitmq_federation")
    node.start()


def disable_online(node: Node) -> None:
    node.run("rabbitmq-plugins", "disable", "rabbitmq_federation_common")  # and so all of 4.3's that need it


Disable = Callable[[Node], None]
WAYS = [
    pytest.param((None, disable_offline, {}), marks=pytest.mark.thorough, id="this machine's"),
    pytest.param(("sid", disable_online, {"resource-cleanup-mode": "never"}), marks=pytest.mark.versions, id="sid"),
]


@pytest.fixture(params=WAYS)
def native(request: pytest.FixtureRequest, pair: Pair, borrowed: Borrowed) -> tuple[Pair, Disable]:
    """A downstream with the plugin and a link that runs, and how to disable the plugin."""
    release, disable, settings = request.param
    node = borrowed(release=release, plugins=NATIVE_PLUGINS)
    node.admin.vhost(pair.vhost)
    uri = {"uri": pair.there.uri(pair.vhost)}
    node.admin.parameter("federation-upstream", pair.vhost, "theirs", uri | settings)
    define(node, pair.vhost)
    native = replace(pair, here=node)
    wait_for_consumer(pair.there, pair.vhost, native.queue)
    eventually(lambda: is_bound(native), what="the plugin's binding", ignoring=AdminError)
    return native, disable


def define(node: Node, vhost: str) -> None:
    """Two exchanges, of which another policy without federation wins the second."""
    admin = node.admin
    admin.policy(vhost, "federate", "^x", definition={"federation-upstream": "theirs"}, apply_to="exchanges")
    admin.policy(vhost, "other", "^xx", definition={"alternate-exchange": "ae"}, apply_to="exchanges", priority=1)
    admin.exchange(vhost, "x")
    admin.exchange(vhost, "xx")
    admin.queue(vhost, "q")
    admin.bind(vhost, "x", "q", "key")


def is_bound(native: Pair) -> bool:
    """The plugin binds after it has made its internal exchange."""
    found = native.there.admin.get("exchanges", native.vhost, "x", "bindings", "source")
    return any(each["routing_key"] == "key" for each in found)


def letters(native: Pair) -> list[str]:
    names = [each["name"] for each in native.there.admin.get("exchanges", native.vhost)]
    return [name.removeprefix(f"{native.queue} ") for name in names if name.startswith(f"{native.queue} ")]


async def put_backlog(native: Pair) -> None:
    """What nobody forwards: the plugin has gone, and the binding is left."""
    uri = native.there.uri(native.vhost)
    assert await publish_async(uri, "x", "key", ["0", "1", "2"]) == 3
    eventually(lambda: messages_in(native.there, native.vhost, native.queue) == 3, what="the backlog")


async def test_the_plugin_disabled_leaves_all_to_the_agent(native: tuple[Pair, Disable]) -> None:
    pair, disable = native
    running = await pair.plan_link({})
    assert (running.outlook, running.actions) == (Outlook.STANDBY, ())

    disable(pair.here)
    await put_backlog(pair)
    [letter] = letters(pair)

    planned = await pair.plan_link({})
    assert (planned.outlook, planned.link.name, planned.link.policy) == (Outlook.RUN, "x", "federate")
    assert told(planned.actions) == [
        ("keep", "exchange", "x"),
        ("keep", "queue", pair.queue),
        ("create", "exchange", f"{pair.queue} {'B' if letter == 'A' else 'A'}"),
        ("bind", "binding", "key"),
        ("delete", "exchange", f"{pair.queue} {letter}"),
        ("create", "exchange", f"federation-agent: notices when x is deleted ({pair.queue})"),
    ]
    assert "3 messages" in planned.actions[1].why
