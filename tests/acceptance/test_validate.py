"""`validate` as a user runs it: exit status, streams, colours, and words for wrong use."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from agent.version import VERSION
from tests.acceptance.command import COMMAND, federation_agent, on_terminal, printing_to
from tests.lab.waiting import DEADLINE

GOOD = """\
downstream: {uri: amqp://localhost}
upstreams: {origin: {uri: amqp://remote}}
policies: {p: {pattern: ^x, definition: {federation-upstream: origin}}}
"""
BAD = """\
downstream: {uri: amqp://localhost}
upstreams:
  origin: {uri: amqp://remote, max-hop: 2}
policies: {p: {pattern: "[", definition: {federation-upstream: origni}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "good.yaml", "-c", "bad.yaml"),
        ("-c", "good.yaml", "bad.yaml"),
        ("good.yaml", "--config", "bad.yaml"),
        ("good.yaml", "bad.yaml"),
    ],
)
def test_several_files_are_judged_each(folder: Path, arguments: tuple[str, ...]) -> None:
    done = federation_agent("validate", *arguments, cwd=folder)
    assert done.status == 2
    assert done.out == "good.yaml: valid (upstreams: 1, policies: 1)\n"
    assert [line.split(": ")[0] for line in done.errors] == ["bad.yaml:3:32", "bad.yaml:4:25", "bad.yaml:4:64"]
    assert "did you mean 'max-hops'?" in done.errors[0]
    assert "did you mean 'origin'?" in done.errors[2]


def test_good_files_alone_are_exit_0_and_no_word_on_standard_error(folder: Path) -> None:
    done = federation_agent("validate", "-c", "good.yaml", cwd=folder)
    assert (done.status, done.err) == (0, "")


def test_a_pattern_that_matches_no_upstream_is_told(folder: Path) -> None:
    """As a set that isn't defined is: the policy federates nothing."""
    of_pattern = GOOD.replace("federation-upstream: origin", "federation-upstream-pattern: ^dc")
    (folder / "pattern.yaml").write_text(of_pattern)
    done = federation_agent("validate", "pattern.yaml", cwd=folder)
    [line] = done.errors
    assert "upstream pattern '^dc' in vhost '/' matches no upstream" in line
    assert "there are 'origin'" in line
    assert (done.status, done.out) == (2, "pattern.yaml: valid, but 1 not run (upstreams: 1, policies: 1)\n")


def test_a_warning_is_told_and_is_no_error(folder: Path) -> None:
    (folder / "warns.yaml").write_text(GOOD.replace("remote}", "remote, ha-policy: all}"))
    done = federation_agent("validate", "warns.yaml", cwd=folder)
    assert done.status == 0
    [line] = done.errors
    assert line.startswith("warns.yaml:2:53: warning: ha-policy: no current broker supports")


def test_a_secret_s_file_that_is_missing_is_an_error_where_the_agent_is_to_run(folder: Path) -> None:
    """As `run` refuses it; elsewhere somebody reviews the rest."""
    (folder / "secret.yaml").write_text(GOOD.replace("amqp://remote", "'amqp://a:${file:password}@${env:UNSET}'"))
    done = federation_agent("validate", "secret.yaml", cwd=folder)
    assert (done.status, done.out) == (2, "")
    assert done.errors[0] == "secret.yaml:2:27: ${file:password}: there is no such file"
    assert "warning: ${env:UNSET}" in done.errors[1]
    reviewed = federation_agent("validate", "--no-secrets", "secret.yaml", cwd=folder)
    assert (reviewed.status, len(reviewed.errors)) == (0, 2)
    (folder / "password").write_text("secret")
    assert federation_agent("validate", "secret.yaml", cwd=folder).status == 0


def test_json_tells_each_file_and_problem(folder: Path) -> None:
    done = federation_agent("validate", "--format", "json", "-c", "good.yaml", "bad.yaml", cwd=folder)
    assert (done.status, done.err) == (2, "")
    told = json.loads(done.out)
    assert told["valid"] is False
    assert [(one["file"], one["valid"]) for one in told["files"]] == [("good.yaml", True), ("bad.yaml", False)]
    assert told["files"][0]["problems"] == []
    first, *_ = told["files"][1]["problems"]
    assert {key: first[key] for key in ("file", "line", "column", "severity")} == {
        "file": "bad.yaml", "line": 3, "column": 32, "severity": "error",
    }  # fmt: skip
    assert "max-hops" in first["message"]


def test_json_is_whole_whatever_a_file_is_called(folder: Path) -> None:
    odd = os.fsdecode(b"\xff\xc3\xbc.yaml")
    (folder / odd).write_text(GOOD)
    done = federation_agent("validate", "--format", "json", odd, cwd=folder, LC_ALL="C", PYTHONCOERCECLOCALE="0")
    assert done.status == 0
    assert json.loads(done.out)["files"][0]["file"] == odd


@pytest.mark.parametrize(
    "locale",
    [
        pytest.param({"LC_ALL": "C.UTF-8"}, marks=pytest.mark.thorough),
        {"LC_ALL": "C"},
        pytest.param({"PYTHONIOENCODING": "ascii"}, marks=pytest.mark.thorough),
    ],
)
def test_any_name_can_be_told_in_any_locale(folder: Path, locale: dict[str, str]) -> None:
    (folder / "ü\n.yaml").write_text(GOOD)
    done = federation_agent("validate", "ü\n.yaml", "nö\n.yaml", cwd=folder, **locale)
    assert done.status == 2
    assert done.out.endswith(": valid (upstreams: 1, policies: 1)\n")
    assert (len(done.out.splitlines()), len(done.errors)) == (1, 1)
    assert "there is no such file" in done.err


def test_colours_appear_on_a_terminal_only(folder: Path) -> None:
    assert "\033[32mvalid\033[0m" in on_terminal("validate", "good.yaml", cwd=folder)
    assert "\033" not in on_terminal("validate", "good.yaml", cwd=folder, NO_COLOR="1")
    assert "\033" not in on_terminal("validate", "--format", "json", "good.yaml", cwd=folder)
    assert "\033" not in federation_agent("validate", "good.yaml", cwd=folder).out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bogus"], "No such command 'bogus'"),
        (["--bogus"], "No such option: --bogus"),
        (["validate"], "give a file: federation-agent validate -c FILE"),
        (["validate", "-c"], "'-c' requires an argument"),
        (["validate", "--bogus"], "No such option: --bogus"),
        (["validate", "--format", "xml", "good.yaml"], "'xml' is not one of 'text', 'json'"),
        (["plan"], "Missing option '-c'"),
        (["plan", "-c", "good.yaml", "more.yaml"], "unexpected extra argument"),
        (["import-legacy"], "Missing argument 'rabbitmq.config'"),
        (["import-legacy", "one", "two"], "unexpected extra argument"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(folder: Path, arguments: list[str], words: str) -> None:
    done = federation_agent(*arguments, cwd=folder)
    assert (done.status, done.out) == (2, "")
    [line] = done.errors
    assert line.startswith("federation-agent: ")
    assert words in line


@pytest.mark.parametrize("command", ["validate", "plan", "run", "import-legacy"])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_helps(command: str, flag: str) -> None:
    done = federation_agent(command, flag)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"Usage: federation-agent {command} ")
    summary = next(line for line in federation_agent("--help").out.splitlines() if line.startswith(f"  {command} "))
    assert summary.endswith(".") and not summary.endswith("...")


def test_no_arguments_help_too_and_version_is_the_packages() -> None:
    assert federation_agent() == federation_agent("--help")
    said = rf"federation-agent {re.escape(VERSION)} \((build [0-9a-f]{{12}}, )?Python 3\.\d+\.\S+\)\n"
    assert re.fullmatch(said, federation_agent("--version").out)


@pytest.mark.parametrize(("arguments", "file", "status"), [([], "bad.yaml", 2), (["--format", "json"], "good.yaml", 0)])
def test_a_reader_that_leaves_is_no_news(folder: Path, arguments: list[str], file: str, status: int) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = printing_to(write, "validate", *arguments, *[file] * 50, cwd=folder)
    finally:
        os.close(write)
    assert done.status == status
    assert all(line.startswith("bad.yaml:") for line in done.errors)


@pytest.mark.parametrize("arguments", [["validate", "--format", "json", "good.yaml"], ["-h"]])
def test_a_full_disk_is_one_line(folder: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = printing_to(full, *arguments, cwd=folder)
    assert done.status == 3
    assert done.err == "federation-agent: the output can't be written: No space left on device\n"


def test_errors_that_nobody_can_read_leave_the_exit_status(folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [COMMAND, "validate", "bad.yaml"]
        assert subprocess.run(command, cwd=folder, stderr=full, timeout=DEADLINE, check=False).returncode == 2


def test_what_is_defined_and_not_run_is_a_problem(folder: Path) -> None:
    (folder / "idle.yaml").write_text(GOOD + "upstream-sets: {s: []}\n")
    done = federation_agent("validate", "idle.yaml", cwd=folder)
    assert done.status == 2
    assert done.out == "idle.yaml: valid, but 1 not run (upstreams: 1, upstream sets: 1, policies: 1)\n"
    assert done.errors == ["idle.yaml:4:20: not run: the set is empty, so it defines no link"]
    found = json.loads(federation_agent("validate", "idle.yaml", "--format", "json", cwd=folder).out)
    assert (found["valid"], found["not_run"], found["files"][0]["problems"][0]["severity"]) == (True, 1, "not run")


def test_a_reference_that_leads_nowhere_in_an_export(folder: Path) -> None:
    definition = {"federation-upstream-set": "nowhere"}
    policy = {"vhost": "/", "name": "p", "pattern": "", "apply-to": "exchanges", "definition": definition}
    members = {"vhost": "/", "component": "federation-upstream-set", "name": "s", "value": [{"upstream": "gone"}]}
    (folder / "export.json").write_text(json.dumps({"policies": [policy], "parameters": [members]}))
    (folder / "agent.yaml").write_text("downstream: {uri: amqp://h}\ndefinitions: {files: [export.json]}\n")
    done = federation_agent("validate", "agent.yaml", cwd=folder)
    assert done.status == 2
    assert "not run: upstream set 'nowhere' in vhost '/' isn't defined, so it yields no link" in done.err
    assert "not run: upstream 'gone' of upstream set 's' isn't defined in vhost '/', so it yields no link" in done.err
