"""What is read in several answers, and what of a configuration is put in force."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agent.definitions.sources.keeper import Keeper
from agent.definitions.sources.load import Configuration, load_configuration
from agent.downstream.listen import LoggedAlreadyError
from agent.downstream.read import read_downstream
from agent.downstream.watch import ReloadCause
from agent.errors import TransientError
from agent.runtime.supervisor import Supervisor
from agent.status.board import Board
from tests.unit.runtime.http_api import HttpApi, http_api
from tests.unit.status.test_board import Clock

NOBODY = "amqp://127.0.0.1:1"
ORIGIN = {"component": "federation-upstream", "vhost": "/", "name": "origin", "value": {"uri": "amqp://there"}}


@pytest.fixture
def api() -> Iterator[HttpApi]:
    with http_api() as made:
        yield made


def configuration(path: Path, api: HttpApi, rest: str = "") -> Configuration:
    path.write_text(f"downstream: {{uri: '{NOBODY}', management: '{api.url}'}}\n{rest}")
    return load_configuration(str(path), environment={})


def policy(name: str) -> dict[str, Any]:
    definition = {"federation-upstream-set": "all"}
    rest = {"pattern": "^x$", "apply-to": "exchanges", "definition": definition, "priority": 0}
    return {"vhost": "/", "name": name, **rest}


def exchange(policy: str) -> dict[str, Any]:
    flags = {"durable": True, "auto_delete": False, "internal": False}
    return {"name": "x", "type": "topic", **flags, "arguments": {}, "policy": policy}


async def test_a_policy_that_is_replaced_between_two_answers_is_not_lifted(api: HttpApi, tmp_path: Path) -> None:
    """The exchange's answer names the new policy, and the policies' answer before it only the old one."""
    answers = iter([[policy("old")], *([[policy("new")]] * 9)])
    api.answers |= {"parameters": [ORIGIN], "policies": lambda: next(answers), "exchanges/%2F": [exchange("new")]}
    reading = await read_downstream(configuration(tmp_path / "agent.yaml", api), Keeper())
    found = reading.states["/"].exchanges["x"].policy
    assert found is not None
    assert found.name == "new"


async def test_policies_that_never_hold_still_leave_all_as_it_is(api: HttpApi, tmp_path: Path) -> None:
    numbers = count()
    api.answers |= {"parameters": [ORIGIN], "policies": lambda: [policy(f"p{next(numbers)}")]}
    with pytest.raises(TransientError, match="policies change faster than they can be read"):
        await read_downstream(configuration(tmp_path / "agent.yaml", api), Keeper())


async def test_definitions_that_the_user_may_not_see_any_more_are_not_taken_for_removed(
    api: HttpApi, tmp_path: Path
) -> None:
    """A user with the tag monitoring is told of all vhosts, but of definitions only where a permission is given."""
    keeper, read = Keeper(), configuration(tmp_path / "agent.yaml", api)
    api.answers |= {"parameters": [ORIGIN], "policies": [policy("p")], "policies/%2F": [policy("p")]}
    assert (await read_downstream(read, keeper)).sees("/")
    api.answers |= {"parameters": [], "policies": [], "policies/%2F": 401}
    for _ in range(2):
        assert not (await read_downstream(read, keeper)).sees("/")
    api.answers["policies/%2F"] = []
    assert (await read_downstream(read, keeper)).sees("/")
    api.answers["policies/%2F"] = 401  # it isn't asked again: nothing was defined there
    assert (await read_downstream(read, keeper)).sees("/")


async def test_a_configuration_is_adopted_whole_or_not_at_all(api: HttpApi, tmp_path: Path) -> None:
    """Its upstream is also defined by the broker: neither that nor its settings are in force until that one goes."""
    path = tmp_path / "agent.yaml"
    first = configuration(path, api)
    api.answers["parameters"] = [ORIGIN]
    board = Board(Clock(), "dc2-a")
    supervisor = Supervisor(lambda: load_configuration(str(path), environment={}), board)
    try:
        await supervisor.reload(frozenset({ReloadCause.START}))
        assert not board.problems
        configuration(path, api, "agent: {group: dc3}\nupstreams: {origin: {uri: 'amqp://there'}}\n")
        await supervisor.reload(frozenset({ReloadCause.FILE}))
        assert "is also defined" in "; ".join(board.problems)
        assert supervisor.configuration.settings == first.settings
        assert board.group == "dc2"
        api.answers["parameters"] = []
        await supervisor.reload(frozenset({ReloadCause.POLL}))
        assert not board.problems
        assert supervisor.configuration.settings.agent.group == "dc3"
        assert board.group == "dc3", "it is in force at once"
    finally:
        await supervisor.stop()


async def test_any_exception_of_a_reload_is_shown_and_counted(api: HttpApi, tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    configuration(path, api)
    board = Board(Clock(), "dc2-a")
    broken = False

    def load() -> Configuration:
        if broken:
            raise RuntimeError("S3NTINEL")
        return load_configuration(str(path), environment={})

    supervisor = Supervisor(load, board)
    try:
        broken = True
        with pytest.raises(RuntimeError):
            await supervisor.reload(frozenset({ReloadCause.FILE}))
        [problem] = board.problems
        assert problem.startswith("unexpected error while definitions were read (RuntimeError)")
        assert board.refusals == 1
        with pytest.raises(LoggedAlreadyError):
            await supervisor.reload(frozenset({ReloadCause.FILE}))
        assert board.refusals == 1
        broken = False
        await supervisor.reload(frozenset({ReloadCause.FILE}))
        assert not board.problems
    finally:
        await supervisor.stop()


async def test_a_vhost_that_can_not_be_read_stays_as_it_was(api: HttpApi, tmp_path: Path) -> None:
    found = configuration(tmp_path / "agent.yaml", api, "definitions: {management: true}\n")
    api.answers |= {"parameters": [ORIGIN], "policies": [policy("p")], "exchanges/%2F": [exchange("p")]}
    keeper = Keeper()
    before = await read_downstream(found, keeper)
    api.answers["exchanges/%2F"] = [{"type": "topic"}]
    after = await read_downstream(found, keeper)
    assert after.states == before.states
    [problem] = after.problems
    assert "vhost '/': can't be read, so it stays as it was" in str(problem)
