"""Every YAML block and every command of the documents, run.

A fence says what is in it: `yaml` is a migration file, or a configuration or a part of one, to which the mandatory
section is added where it is missing; `console` holds commands, one a line; `text` is output, and a bare fence a
drawing. Commands are the agent's own, which have to exit 0 in a folder with an `agent.yaml`, a `migration.yaml` and
a `standby.yaml` between two brokers and a 2.x `rabbitmq.config`, or `make` with targets of the Makefile, which are run
elsewhere, or those of `install.md`, which `tests/deploy/test_install.py` runs. There are no others.
"""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from agent.definitions.sources.load import load_migration
from tests.acceptance.command import COMMAND, ROOT, Done, federation_agent
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.waiting import DEADLINE, eventually

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>[^\n`]*)\n(?P<content>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
KINDS = {"yaml", "console", "text", ""}
MANDATORY = "downstream: {uri: amqp://localhost}\n"
AGENT = ".venv/bin/federation-agent "
CLIENTS = ("shop", "billing")
"""Users that are fenced."""
STARTED = 120.0  # seconds, on a machine that is busy
GO_ON = (f"{AGENT}migrate run migration.yaml", f"{AGENT}migrate rollback migration.yaml")
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
NAVIGATED = re.compile(r"[ :] (\S+\.md)$", re.MULTILINE)
PICTURE = re.compile(r' (?:src|srcset)="([^"]+)"')
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)


def blocks(kind: str) -> dict[str, str]:
    """What is fenced as that kind, by document and line."""
    return {
        f"{path.relative_to(ROOT)}:{text[: found.start()].count(chr(10)) + 1}": found["content"]
        for path in DOCUMENTS
        for text in [path.read_text()]
        for found in FENCE.finditer(text)
        if found["kind"] == kind
    }


def lines(content: str) -> list[str]:
    """A comment begins with two blanks and a #."""
    return [line.split("  #")[0].strip() for line in content.splitlines() if line.strip()]


YAML, CONSOLE = blocks("yaml"), blocks("console")
COMMANDS = {f"{place}:{line}": line for place, block in CONSOLE.items() for line in lines(block)}
OURS = {place: line for place, line in COMMANDS.items() if line.startswith(AGENT)}
MAKE = {place: line for place, line in COMMANDS.items() if line.startswith("make ")}
INSTALL = {place: line for place, line in COMMANDS.items() if place.startswith("docs/install.md:")}


def test_every_fence_is_of_a_kind_that_is_tested() -> None:
    kinds = {found["kind"] for path in DOCUMENTS for found in FENCE.finditer(path.read_text())}
    assert kinds <= KINDS
    assert {"yaml", "console"} <= kinds
    fences = sum(line.strip().startswith("```") for path in DOCUMENTS for line in path.read_text().splitlines())
    assert fences == 2 * sum(len(FENCE.findall(path.read_text())) for path in DOCUMENTS)


def test_every_command_is_one_that_is_tested() -> None:
    assert COMMANDS == OURS | MAKE | INSTALL


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    targets = [target.partition("#")[::2] for target in LINK.findall(path.read_text())]
    assert [name for name, _ in targets if not (path.parent / name).exists()] == []
    pointed = [(path if not name else path.parent / name, anchor) for name, anchor in targets if anchor]
    assert [(str(at), anchor) for at, anchor in pointed if anchor not in anchors(at)] == []


def anchors(path: Path) -> set[str]:
    """As headings are turned into anchors where Markdown is shown."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_reached_from_the_readme() -> None:
    """In two steps at most."""
    first = {ROOT / target.partition("#")[0] for target in LINK.findall((ROOT / "README.md").read_text())}
    start = ROOT / "docs/start.md"
    second = {start.parent / target.partition("#")[0] for target in LINK.findall(start.read_text())}
    assert start in first
    assert set((ROOT / "docs").glob("*.md")) <= first | second


def test_every_page_has_one_place_on_the_site() -> None:
    """`make docs` finds this too, but later; decisions are reached from their list."""
    listed = NAVIGATED.findall((ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2])
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert sorted(listed) == sorted(pages | {"index.md", "changelog.md", "contributing.md", "decisions/README.md"})


def test_the_readme_is_short_and_its_pictures_are_there() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") < 120
    pictures = PICTURE.findall(text)
    assert len(pictures) == 2
    assert [each for each in pictures if not (ROOT / each).is_file()] == []


@pytest.mark.parametrize("content", YAML.values(), ids=YAML)
def test_a_configuration_is_valid(tmp_path: Path, content: str) -> None:
    if "target" in yaml.safe_load(content):
        check_migration(tmp_path, content)
        return
    missing = "" if "downstream" in yaml.safe_load(content) else MANDATORY
    (tmp_path / "agent.yaml").write_text(missing + content)
    done = federation_agent("validate", "--no-secrets", "-c", "agent.yaml", cwd=tmp_path)
    assert (done.status, done.out[:17]) == (0, "agent.yaml: valid"), done.err


def check_migration(tmp_path: Path, content: str) -> None:
    """It is read before any broker is asked."""
    (tmp_path / "migration.yaml").write_text(content)
    found = load_migration(str(tmp_path / "migration.yaml"), environment={"OLD_PASSWORD": "a", "NEW_PASSWORD": "b"})
    assert found.vhosts
    assert found.warnings == ()


@pytest.mark.parametrize("command", MAKE.values(), ids=MAKE)
def test_a_make_target_is_there(command: str) -> None:
    asked = [word for word in command.split()[1:] if "=" not in word]
    assert set(asked) <= set(TARGET.findall((ROOT / "Makefile").read_text()))


@pytest.fixture
def folder(tmp_path: Path, broker: Node, second_broker: Node, vhost: str, lab: Lab) -> Iterator[Path]:
    """Where the documents' commands find what they name, and an agent to ask."""
    broker.admin.exchange(vhost, "federated.x")
    origin = {"origin": {"uri": second_broker.uri(vhost)}}
    policy = {"pattern": r"^federated\.", "definition": {"federation-upstream-set": "all"}}
    document = {
        "agent": {"http": {"listen": f"127.0.0.1:{lab.ports.take()}"}},
        "downstream": {"uri": f"amqp://127.0.0.1:{broker.amqp_port}", "management": broker.management_uri()},
        "vhosts": {vhost: {"upstreams": origin, "policies": {"federation": policy}}},
    }
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(document))
    shutil.copy(ROOT / "tests/unit/definitions/legacy/verbose.config", tmp_path / "rabbitmq.config")
    (tmp_path / "config").symlink_to(ROOT / "config")
    ends = {
        end: {"uri": node.uri(vhost), "management": node.management_uri()}
        for end, node in (("source", second_broker), ("target", broker))
    }
    (tmp_path / "migration.yaml").write_text(yaml.safe_dump({**ends, "vhosts": {vhost: None}}))
    of_source = {"uri": second_broker.uri("")[:-1], "management": second_broker.management_uri()}
    standby = {"of": "origin", "vhosts": {vhost: None}}
    own = {"uri": broker.uri(), "management": broker.management_uri()}
    written = {"downstream": own, "upstreams": {"origin": of_source}, "standby": standby}
    (tmp_path / "standby.yaml").write_text(yaml.safe_dump(written))
    export = broker.admin.get("definitions", vhost)
    (tmp_path / "definitions.json").write_text(json.dumps({**export, "rabbit_version": "3.10.8"}))
    with second_broker.admin.temporary_vhost(vhost):
        for name in ("orders", "orders.new", "orders.eu", "dead-letters"):
            second_broker.admin.queue(vhost, name)
        for user in CLIENTS:
            second_broker.admin.user(user, "clients-password")
            second_broker.admin.permissions(vhost, user)
        yield tmp_path
        for user in CLIENTS:
            second_broker.admin.delete("users", user)


def test_commands_do_what_they_are_shown_to_do(folder: Path, second_broker: Node, vhost: str) -> None:
    """Beside the agent that one of them starts, as an operator does; it gets SIGTERM at the end. Clients are fenced
    after that: such an agent may publish, so a fence is refused as long as it is connected."""
    [run] = {line for line in OURS.values() if line.startswith(f"{AGENT}run ")}
    fences = [line for line in OURS.values() if line.startswith((f"{AGENT}migrate fence ", f"{AGENT}migrate unfence "))]
    with subprocess.Popen([COMMAND, *words(run)], cwd=folder, stdout=subprocess.DEVNULL) as agent:
        try:
            eventually(lambda: has_queue(second_broker, vhost), STARTED, what="a link is set up")
            others = {line: ran(folder, line) for line in OURS.values() if line not in {run, *GO_ON, *fences}}
        finally:
            agent.terminate()
        assert agent.wait(DEADLINE) == 0
    for line in fences:
        done = eventually(partial(done_well, folder, line), STARTED, what=line)
        assert done is not None
        others[line] = done
    failed = {line: done for line, done in others.items() if done.status not in {0, nothing_there(line)}}
    assert not failed
    assert {line: done.out for line, done in others.items() if not done.out} == {}


@pytest.mark.parametrize("command", GO_ON)
def test_a_command_that_goes_on_ends_when_it_is_told_to(folder: Path, lab: Lab, command: str) -> None:
    assert command in OURS.values()
    assert federation_agent("migrate", "copy", "migration.yaml", cwd=folder).status == 0
    output, listen = folder / "output", f"127.0.0.1:{lab.ports.take()}"
    with (
        output.open("w") as log,
        subprocess.Popen([COMMAND, *words(command), "--listen", listen], cwd=folder, stdout=log, stderr=log) as process,
    ):
        try:
            eventually(lambda: "running" in output.read_text(), STARTED, what="a queue moves")
        finally:
            process.terminate()
        assert process.wait(DEADLINE) == 0


def done_well(folder: Path, line: str) -> Done | None:
    done = ran(folder, line)
    return done if done.status == 0 else None


def ran(folder: Path, line: str) -> Done:
    """Without a shell: none uses more of it than a file for the output, which `validate` has to take then."""
    asked = yaml.safe_load((folder / "agent.yaml").read_text())["agent"]["http"]["listen"]
    command, _, written = line.partition(" > ")
    done = federation_agent(*words(command), cwd=folder, FEDERATION_AGENT_URL=f"http://{asked}")
    if written:
        (folder / f"written-{written}").write_text(done.out)
        assert federation_agent("validate", "-c", f"written-{written}", cwd=folder).status == 0
    return done


def words(command: str) -> list[str]:
    return shlex.split(command.removeprefix(AGENT))


def nothing_there(line: str) -> int:
    """The exit status of commands for messages in a queue, where there are none, and of a cluster that is in use."""
    if line.startswith(f"{AGENT}migrate status "):
        return 4
    return 5 if line.startswith((f"{AGENT}quarantine ", f"{AGENT}move ")) else 0


def has_queue(node: Node, vhost: str) -> bool:
    return any(queue["name"].startswith("federation: ") for queue in node.admin.get("queues", vhost))
