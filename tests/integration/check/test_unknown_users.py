"""A user that the broker's HTTP API doesn't know: no line is advised that fails for it."""

from __future__ import annotations

import pytest

from agent.check.context import Attempt, BrokerApis, BrokerFacts, CheckContext, upstream
from agent.check.findings import Finding
from agent.check.permissions import AccountNeeds, judge_permissions
from agent.core.addresses import uri
from agent.core.permissions import Need, Permission
from agent.errors import BrokerError, Failure, FailureKind, PermanentError, TransientError
from tests.integration.check.some_brokers import Answers, api

NEED = Need(Permission.READ, "x", "binding")


async def judged(error: BrokerError | None, *, in_vhost: str = "v") -> list[Finding]:
    address, tried_address = uri.parse("amqp://u:p@127.0.0.1:1/v"), uri.parse(f"amqp://u:p@127.0.0.1:1/{in_vhost}")
    endpoint, tried_endpoint = (upstream("origin", "v", [each], []) for each in (address, tried_address))
    account = AccountNeeds(endpoint, "u", "v", {NEED: set()}, (NEED,))
    opened = BrokerFacts("upstream origin", in_vhost, "u", "4.0.5", "c", 131072, 2047) if error is None else None
    async with api(Answers()) as answering:
        context = CheckContext((), {}, "", BrokerApis((), given={"origin": answering}))
        return [
            each
            async for each in judge_permissions(
                [account], context, [Attempt(tried_endpoint, tried_address, opened, error)]
            )
        ]


async def test_one_who_may_log_in_is_authorised_elsewhere() -> None:
    [found] = await judged(None)
    assert "so another service authorises it; that the login works doesn't prove them" in found.message
    assert found.fix == "allow there read '^x$'"


async def test_where_nobody_can_log_in_the_user_may_be_missing() -> None:
    [found] = await judged(TransientError("upstream origin 127.0.0.1:1: connection refused"))
    assert "the login works" not in found.message
    assert found.fix.startswith("rabbitmqctl add_user u, if it is missing, and rabbitmqctl set_permissions -p v u ")


@pytest.mark.parametrize(("in_vhost", "findings"), [("v", 0), ("other", 1)])
async def test_what_is_wrong_with_a_vhost_says_nothing_of_others(in_vhost: str, findings: int) -> None:
    facts = Failure(FailureKind.NO_VHOST, object=in_vhost, object_type="vhost")
    error = PermanentError(f"upstream origin 127.0.0.1:1: vhost {in_vhost!r} does not exist", facts=facts)
    assert len(await judged(error, in_vhost=in_vhost)) == findings
