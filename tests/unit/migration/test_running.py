"""What a move follows, where it doesn't begin, and the file that an agent is started with."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from agent.core.migration.objects import ClusterObjects, ObjectKind
from agent.core.migration.selection import MovedBy
from agent.core.text import printable
from agent.definitions.sources.cluster_objects import ObjectsOfVhosts
from agent.definitions.sources.load import Configuration, load_configuration, load_migration
from agent.errors import BrokerError, PermanentError, UsageError
from agent.migration.running import (
    BETWEEN,
    MovingConfiguration,
    in_vhost,
    move_of,
    read_both,
    refuse_what_cant_begin,
    write_move,
)
from tests.unit.core.migration.clusters import OLD, queue
from tests.unit.migration.http_api import served

SELECTION: Final = "vhosts: {v: }"


@dataclass(slots=True)
class Side:
    """The HTTP API of a cluster with the vhost `v`."""

    cluster: str
    queues: list[str] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)
    consumers: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    user: str = "u"
    is_down: bool = False

    async def answer(self, request: web.Request) -> web.Response:
        if self.is_down:
            return web.json_response({"error": "down"}, status=500)
        queues = [{"name": name} for name in self.queues]
        whole = {"durable": True, "auto_delete": False, "arguments": {}, "type": "classic"}
        answers: dict[str, Any] = {
            "overview": {"cluster_name": self.cluster, "rabbitmq_version": "4.3.6"},
            "vhosts": [{"name": "v"}],
            "queues": [each if each["name"] in self.unread else {**each, **whole} for each in queues],
            "consumers": [{"queue": {"name": "q"}, "consumer_tag": tag} for tag in self.consumers],
            "whoami": {"name": self.user, "tags": self.tags},
        }
        return web.json_response(answers.get(request.path.split("/")[2], []))


class EndOfTestError(Exception):
    """The test has seen enough."""


@dataclass(slots=True)
class Both:
    path: Path
    source: Side = field(default_factory=lambda: Side("old", ["q"]))
    target: Side = field(default_factory=lambda: Side("new", ["q"]))
    said: list[str] = field(default_factory=list)

    async def serve(self, stack: AsyncExitStack) -> None:
        lines = []
        for key, side in (("source", self.source), ("target", self.target)):
            port = await stack.enter_async_context(served(side.answer))
            lines.append(f'{key}: {{uri: "amqp://u:s-1@{key}", management: "http://u:s-1@127.0.0.1:{port}"}}\n')
        self.path.write_text("".join(lines) + SELECTION)

    async def begin(self, *, back: bool = False) -> None:
        async with AsyncExitStack() as stack:
            await self.serve(stack)
            migration = load_migration(str(self.path), environment={})
            await refuse_what_cant_begin(move_of(migration, await read_both(migration), back=back))

    async def follow(self, *steps: Callable[[], object]) -> list[set[str]]:
        """The queues that move, at first and each time that something has changed; each step happens between looks."""
        waiting = list(steps)

        async def sleep(seconds: float) -> None:
            assert seconds == BETWEEN
            if not waiting:
                raise EndOfTestError
            waiting.pop(0)()

        async with AsyncExitStack() as stack:
            await self.serve(stack)
            read = await read_both(load_migration(str(self.path), environment={}))
            moving = MovingConfiguration(str(self.path), {}, read)
            found = [moved(moving)]
            with suppress(EndOfTestError):
                await moving.follow(
                    lambda: found.append(moved(moving)), lambda error: self.said.append(str(error)), sleep
                )
            self.said += [str(each) for each in moving.load().warnings]
        return found


def moved(moving: MovingConfiguration) -> set[str]:
    return {name.removeprefix("migrate ") for name in moving.load().definitions.of("v").shovels}


@pytest.fixture
def both(tmp_path: Path) -> Both:
    return Both(tmp_path / "m.yaml")


async def test_what_is_copied_later_moves_and_what_goes_ends(both: Both) -> None:
    steps = [
        lambda: both.source.queues.append("later"),
        lambda: both.target.queues.append("later"),
        lambda: None,
        lambda: both.source.queues.remove("q"),
    ]
    assert await both.follow(*steps) == [{"q"}, {"q"}, {"q", "later"}, {"later"}]
    assert both.said == []


async def test_what_isnt_copied_yet_is_said(both: Both) -> None:
    assert await both.follow(lambda: both.source.queues.append("later")) == [{"q"}, {"q"}]
    assert "1 queue is missing (queue 'later' in vhost 'v') at the target; they move once" in both.said[0]


async def test_a_queue_whose_node_is_down_and_a_cluster_that_doesnt_answer_change_nothing(both: Both) -> None:
    steps = [
        lambda: both.source.unread.add("q"),
        lambda: setattr(both.target, "is_down", True),
        lambda: None,
        lambda: setattr(both.target, "is_down", False),
    ]
    assert await both.follow(*steps) == [{"q"}]
    assert len(both.said) == 1
    assert "target" in both.said[0]


async def test_what_cant_begin_says_what_to_do(both: Both) -> None:
    await both.begin()
    both.source.queues.append("new")
    with pytest.raises(
        PermanentError, match=r"^target: 1 queue is missing .*: run 'federation-agent migrate copy' first"
    ):
        await both.begin()
    await both.begin(back=True)
    both.target.cluster = "old"
    with pytest.raises(PermanentError, match="both named 'old'"):
        await both.begin()


async def test_messages_dont_go_round(both: Both) -> None:
    both.target.consumers = ["federation-agent: migrate to elsewhere", "mine"]
    await both.begin()
    both.target.consumers = ["federation-agent: migrate to old 2"]
    with pytest.raises(PermanentError, match="target: an agent moves queue 'q' in vhost 'v' back to source"):
        await both.begin()
    await both.begin(back=True)
    both.source.consumers = ["federation-agent: migrate to new"]
    with pytest.raises(PermanentError, match="source: an agent moves queue 'q' in vhost 'v' back to target"):
        await both.begin(back=True)


async def test_a_user_who_would_see_no_consumers_is_refused(both: Both) -> None:
    both.target.user = "another"
    with pytest.raises(PermanentError, match="doesn't see consumers of other users") as error:
        await both.begin()
    assert "s-1" not in str(error.value)
    both.target.tags = ["policymaker", "monitoring"]
    await both.begin()


async def test_a_cluster_that_doesnt_answer(both: Both) -> None:
    both.source.is_down = True
    with pytest.raises(BrokerError, match="source"):
        await both.begin()


ENVIRONMENT: Final = {"SAFE": "s-1", "URI": "amqp://u:p@h?heartbeat=5"}
SOURCE: Final = {"uri": "amqp://u:${env:SAFE}@old", "management": "http://u:${env:SAFE}@old:15672"}
TARGET: Final = {"uri": ["amqp://u@new", "amqp://u@newer"], "management": "http://u@new:15672"}
TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)
TRICKY: Final = st.sampled_from(
    [
        "${env:OLD}",
        "$${env:OLD}",
        "a${b",
        "1e5",
        "on",
        "~",
        "<<",
        "*a",
        "a: b",
        "# c",
        "'\"",
        "\u2028",
        "a\n b",
        "x" * 255,
    ]
)
NAMES: Final = (TEXTS | TRICKY).filter(lambda name: not name.startswith(("amq.", "federation")))
VHOSTS: Final = (TEXTS | st.sampled_from(["/", "a/ö %", "on", "1"])).filter(lambda name: "${" not in name)


def objects(name: str, queues: Mapping[str, Any]) -> ClusterObjects:
    found = ObjectsOfVhosts()
    for vhost, names in queues.items():
        found.add_vhost(vhost, {})
        found.add(ObjectKind.QUEUE, vhost, [queue(each) for each in names])
    return ClusterObjects(name, OLD, found.objects)


def written(
    directory: Path,
    vhosts: Mapping[str, Mapping[str, str]],
    *,
    back: bool = False,
    source: Mapping[str, Any] = SOURCE,
    out: str = "out.yaml",
    cluster: str = "new",
) -> tuple[MovingConfiguration, Path]:
    """`vhosts`: how each of their queues moves."""
    chosen = {
        vhost: {"queues": {rf"\A{re.escape(name)}\Z": how for name, how in names.items()}}
        if MovedBy.QUEUE_LINK in names.values()
        else {}
        for vhost, names in vhosts.items()
    }
    file, path = directory / "m.yaml", directory / out
    document = {"source": source, "target": TARGET, "vhosts": chosen}
    file.write_text(printable(json.dumps(document, ensure_ascii=False)))
    file.chmod(0o640)
    read = objects("old", vhosts), objects(cluster, vhosts)
    moving = MovingConfiguration(str(file), ENVIRONMENT, read, back)
    move = move_of(load_migration(str(file), environment=ENVIRONMENT), read, back=back)
    step = "rollback" if back else "run"
    write_move(path, move, moving.load(), step=step, environment=ENVIRONMENT)
    return moving, path


def loaded(path: Path) -> Configuration:
    return load_configuration(str(path), environment=ENVIRONMENT)


@given(
    st.dictionaries(VHOSTS, st.dictionaries(NAMES, st.sampled_from(MovedBy), max_size=8), min_size=1, max_size=3),
    st.booleans(),
    NAMES,
)
def test_what_is_written_is_what_runs(
    tmp_path_factory: pytest.TempPathFactory, vhosts: dict[str, dict[str, MovedBy]], back: bool, cluster: str
) -> None:
    """`write` compares the definitions itself, so it must not refuse any."""
    moving, path = written(tmp_path_factory.mktemp("w"), vhosts, back=back, cluster=cluster)
    assert "s-1" not in path.read_text()
    found, meant = loaded(path), moving.load()
    assert found.settings.agent.group == meant.settings.agent.group
    assert found.settings.downstream == meant.settings.downstream
    assert not found.settings.sources.management
    shovels = {
        (vhost, each.source.keys["src-queue"])
        for vhost, of_vhost in found.definitions.vhosts.items()
        for each in of_vhost.shovels.values()
    }
    assert shovels == {(vhost, name) for vhost in vhosts for name, how in vhosts[vhost].items() if how == "shovel"}


def test_addresses_keep_their_references_also_in_another_directory(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s-2")
    (tmp_path / "there").mkdir()
    source = {**SOURCE, "uri": ["amqp://u:${env:SAFE}@old/ignored?heartbeat=5", "amqps://u:${file:secret}@older"]}
    _, path = written(tmp_path, {"a/b": {"q": "shovel", "l": "queue-link"}}, source=source, out="there/out.yaml")
    text = path.read_text()
    assert '"amqp://u:${env:SAFE}@old/a%2Fb?heartbeat=5"' in text
    assert f'"amqps://u:${{file:{tmp_path}/secret}}@older/a%2Fb"' in text
    assert "s-1" not in text and "s-2" not in text
    [shovel] = loaded(path).definitions.of("a/b").shovels.values()
    assert [uri.login[1].reveal() for uri in shovel.source_uris] == ["s-1", "s-2"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640, "as the migration file: it may hold the same passwords"
    assert sorted(each.name for each in path.parent.iterdir()) == ["out.yaml"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({**SOURCE, "uri": "${env:URI}"}, "Write scheme, host and TLS settings"),
        ({**SOURCE, "uri": "amqps://old", "ssl-options": {"cacertfile": "/ca.pem"}}, "not in ${…} or ssl-options"),
    ],
)
def test_an_address_that_cant_be_written_is_refused(tmp_path: Path, source: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        written(tmp_path, {"v": {"q": "shovel"}}, source=source)
    assert [each.name for each in tmp_path.iterdir()] == ["m.yaml"]


def test_only_its_own_file_is_written_over(tmp_path: Path) -> None:
    _, path = written(tmp_path, {"v": {"q": "shovel"}})
    assert len(loaded(written(tmp_path, {"v": {"q": "shovel", "r": "shovel"}})[1]).definitions.of("v").shovels) == 2
    path.write_text("agent: {}\n")
    with pytest.raises(UsageError, match="wasn't written by 'migrate'"):
        written(tmp_path, {"v": {"q": "shovel"}})
    assert path.read_text() == "agent: {}\n"


def test_too_many_for_a_file_are_refused(tmp_path: Path) -> None:
    _, path = written(tmp_path, {"v": {f"q{number:04}": "shovel" for number in range(1_000)}})
    assert len(loaded(path).definitions.of("v").shovels) == 1_000
    with pytest.raises(UsageError, match="room for some thousand"):
        written(tmp_path, {"v": {f"q{number:04}": "shovel" for number in range(4_000)}})


def test_a_uri_in_a_vhost() -> None:
    assert in_vhost("amqp://h", "/") == "amqp://h/%2F"
    assert in_vhost("amqp://u:${file:/a/b?c}@h/x?y=/z", "v") == "amqp://u:${file:/a/b?c}@h/v?y=/z"
    assert in_vhost("amqp://u:$${x@h?y=1", "v") == "amqp://u:$${x@h/v?y=1"
