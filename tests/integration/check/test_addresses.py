"""`check` of shovels with ends of AMQP 1.0."""

from collections.abc import Callable, Iterator

import pytest

from agent.check.configuration import check
from agent.check.findings import Finding, FindingLevel, Topic
from agent.core.addresses.uri import parse_http
from agent.core.permissions import Permission
from agent.definitions.sources.load import load_configuration
from tests.conftest import Borrowed
from tests.integration.check.pair import PASSWORD, Pair, everything_but, problems
from tests.lab.node import AMQP10_PLUGINS, Node

Naming = Callable[[str], str]


@pytest.fixture
def from_plugin(pair: Pair, broker_on: Callable[..., Node]) -> Iterator[Pair]:
    """Its upstream has the plugin for AMQP 1.0. Other tests have it, too: a check reads only the vhost there."""
    there = broker_on(None, plugins=AMQP10_PLUGINS, name="amqp10")
    with there.admin.temporary_vhost(pair.vhost):
        there.admin.queue(pair.vhost, "in")
        yield Pair(pair.directory, pair.here, there, pair.vhost)


async def checked(pair: Pair, *, source: str = "/amq/queue/in", destination: str = "", uri: str = "") -> list[Finding]:
    """What is found of a shovel from there to the queue `q` here, or to an address there."""
    there = uri or pair.there.uri(pair.vhost)
    to = {"dest-uri": pair.here.uri(pair.vhost), "dest-queue": "q"}
    if destination:
        to = {"dest-protocol": "amqp10", "dest-uri": there, "dest-address": destination}
    shovel = {"src-protocol": "amqp10", "src-uri": there, "src-address": source} | to
    configuration = load_configuration(str(pair.write({"shovels": {"s": shovel}})), environment={})
    apis = {f"127.0.0.1:{pair.there.amqp_port}": [parse_http(pair.there.management_uri())]}
    return problems(list((await check(configuration, apis=apis)).findings))


async def test_a_shovel_from_an_address_has_no_problems(from_plugin: Pair) -> None:
    assert await checked(from_plugin) == []


async def test_a_login_that_is_refused(from_plugin: Pair, name: Naming) -> None:
    wrong = from_plugin.user(from_plugin.there, name("user")).replace(PASSWORD, "another")
    [found] = await checked(from_plugin, uri=wrong)
    assert (found.level, found.topic) == (FindingLevel.ERROR, Topic.CONNECTION)
    assert found.message.startswith("login refused for user ")


@pytest.mark.parametrize("permission", [Permission.READ, Permission.WRITE, Permission.CONFIGURE])
async def test_what_a_user_may_not(from_plugin: Pair, name: Naming, permission: Permission) -> None:
    """The source needs read, the destination write on the default exchange, and neither the permission to declare."""
    user = name("user")
    uri = from_plugin.user(from_plugin.there, user, **everything_but(permission, "^other$"))
    found = await checked(from_plugin, destination="/amq/queue/in", uri=uri)
    if permission is Permission.CONFIGURE:
        found = [each for each in found if each.topic is not Topic.LOOP]
        assert found == []
        return
    wanted = "read on 'in' (consuming)" if permission is Permission.READ else "write on 'amq.default' (publishing)"
    [lacking] = [each for each in found if f"lacks in vhost {from_plugin.vhost!r}: {wanted}" in each.message]
    assert lacking.fix.startswith(f"rabbitmqctl set_permissions -p {from_plugin.vhost} {user} ")


async def test_a_circle_through_both_protocols(from_plugin: Pair) -> None:
    [found] = await checked(from_plugin, destination="/amq/queue/in")
    assert (found.level, found.topic) == (FindingLevel.ERROR, Topic.LOOP)


@pytest.mark.versions
async def test_a_form_of_addresses_that_4_0_deprecates(pair: Pair, borrowed: Borrowed) -> None:
    there = borrowed(release="sid", conf=("deprecated_features.permit.amqp_address_v1 = true",))
    with there.admin.temporary_vhost(pair.vhost):
        there.admin.queue(pair.vhost, "in")
        newer = Pair(pair.directory, pair.here, there, pair.vhost)
        [found] = await checked(newer)
        assert await checked(newer, source="/queues/in") == []
    assert (found.level, found.fix) == (FindingLevel.WARNING, "write '/queues/in'")
