"""What the Dockerfile promises, as far as reading it tells; `make image-test` builds and runs it."""

import json
import re
from typing import Final

import pytest
import yaml

from agent.cli.options import USUAL_CONFIG
from tests.deploy.prometheus import ROOT

TEXT: Final = (ROOT / "Dockerfile").read_text()
IGNORED: Final = (ROOT / ".dockerignore").read_text().splitlines()
INSTRUCTIONS: Final = [
    (found["name"], " ".join(found["rest"].replace("\\\n", " ").split()))
    for found in re.finditer(r"^(?P<name>[A-Z]+) (?P<rest>(?:.*\\\n)*.*)$", TEXT, re.MULTILINE)
]


def stages() -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for name, rest in INSTRUCTIONS:
        if name == "FROM":
            found[rest.rpartition(" AS ")[2]] = []
        if found:  # behind what all stages share
            list(found.values())[-1].append((name, rest))
    return found


def lineage(stage: str) -> list[tuple[str, str]]:
    """The stage's instructions and those of what it is made from, the earliest first."""
    found = stages()
    base = found[stage][0][1].partition(" AS ")[0]
    return (lineage(base) if base in found else []) + found[stage]


def last(stage: str, name: str) -> str:
    return [rest for found, rest in lineage(stage) if found == name][-1]


def test_the_agent_without_spark_is_what_is_built_unasked() -> None:
    assert list(stages())[-1] == "agent"
    assert not any("report" in rest or "jre" in rest for _, rest in lineage("agent"))
    assert any("openjdk" in rest for _, rest in lineage("report"))


def test_the_traffic_has_the_client_that_its_script_imports_and_starts_that_script() -> None:
    [(_, source)] = [instruction for instruction in stages()["traffic"] if instruction[0] == "COPY"]
    made_in = source.split()[0].removeprefix("--from=")
    assert has_the_client(made_in)
    service = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["traffic"]
    assert service["build"]["target"] == "traffic"
    [script] = json.loads(last("traffic", "CMD"))
    assert f"./deploy/compose/traffic.py:{script}:ro" in service["volumes"]


def has_the_client(stage: str) -> bool:
    assert "\naio-pika==" in (ROOT / "locks" / "traffic.lock").read_text()
    return any(name == "RUN" and "--requirement locks/traffic.lock " in rest for name, rest in lineage(stage))


def test_the_agent_can_check_by_delivering() -> None:
    [(_, source)] = [instruction for instruction in stages()["agent"] if instruction[0] == "COPY"]
    assert has_the_client(source.split()[0].removeprefix("--from="))


@pytest.mark.parametrize("stage", ["agent", "report"])
def test_an_image_runs_the_command_without_rights_and_without_a_shell(stage: str) -> None:
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", last(stage, "USER"))
    assert json.loads(last(stage, "ENTRYPOINT")) == ["federation-agent"]  # not a shell, which would keep SIGTERM
    assert isinstance(json.loads(last(stage, "CMD")), list)


def test_the_agent_s_health_is_looked_at_with_what_the_image_has() -> None:
    _, _, command = last("agent", "HEALTHCHECK").partition(" CMD ")
    assert json.loads(command) == ["federation-agent", "alive"]
    assert json.loads(last("agent", "CMD")) == ["run", "-c", str(USUAL_CONFIG)]


def test_nothing_is_left_to_chance() -> None:
    bases = {rest.partition(" AS ")[0] for name, rest in INSTRUCTIONS if name == "FROM"} - stages().keys()
    assert bases == {"${BASE}"}  # so that whoever builds can give a digest
    [base] = [rest.removeprefix("BASE=") for name, rest in INSTRUCTIONS if name == "ARG"]
    assert re.search(r"^[\w.]+/.+:(?!latest)", base)
    for name, rest in INSTRUCTIONS:
        if name == "RUN" and "apt-get install" in rest:
            assert "--no-install-recommends" in rest
            assert "rm -rf /var/lib/apt/lists/*" in rest
            assert rest.startswith("apt-get update -o APT::Update::Error-Mode=any && ")  # not without security fixes
        for command in rest.split(" && ") if name == "RUN" else ():
            if " pip " in command or "pip --python" in command:
                assert_hashes_are_checked(command)
    assert not any(name == "ADD" for name, _ in INSTRUCTIONS)


def assert_hashes_are_checked(command: str) -> None:
    """Or nothing is brought from outside."""
    if "--require-hashes" in command:
        [lock] = re.findall(r"--requirement (\S+)", command)
        assert (ROOT / lock).exists()
    else:
        assert "--no-index" in command or command.endswith(" .")
        assert "--no-deps" in command
    if " wheel " in command:
        assert "--no-build-isolation" in command
    elif "/wheels" not in command and "build.lock" not in command:
        assert "--only-binary :all:" in command


def test_the_builder_is_given_what_is_copied_and_nothing_else() -> None:
    assert IGNORED[1] == "*"
    kept = {line[1:] for line in IGNORED if line.startswith("!")}
    copied = {
        word
        for name, rest in INSTRUCTIONS
        if name == "COPY" and not rest.startswith("--from=")
        for word in rest.split()[:-1]
    }
    assert kept == copied
    assert all((ROOT / path).exists() for path in copied)
