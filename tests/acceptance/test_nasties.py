"""What nobody would write: each is told in one line a problem, with its place, quickly and in little memory."""

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.command import Done, federation_agent

MOST_CPU = 10.0  # seconds; what grows with the square of its input takes minutes
MOST_WALL = 6.0
MOST_MEMORY = 200.0
DOWNSTREAM = "downstream: {uri: 'amqp://h'}\n"
UPSTREAM = DOWNSTREAM + "upstreams: {u: {uri: 'amqp://h'}}\n"


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def bomb(join: str) -> str:
    """Each line is the ninefold of the one before."""
    lines = (f"a{n}: &a{n} {join % ','.join([f'*a{n - 1}'] * 9)}" for n in range(1, 20))
    return "\n".join(["a0: &a0 {x: 1}", *lines])


CONFIGURATIONS: dict[str, bytes | str] = {
    "empty": "",
    "noise": noise(1_000_000),
    "little noise": noise(100),
    "NUL": b"\0" * 1_000_000,
    "text": "hello",
    "UTF-16": DOWNSTREAM.encode("utf-16"),
    "UTF-16 without a mark": DOWNSTREAM.encode("utf-16-le"),
    "latin-1": (DOWNSTREAM + "upstreams: {ü: {uri: amqp://h}}").encode("latin-1"),
    "half a character": DOWNSTREAM.encode() + b"# \xc3",
    "lists": "a: " + "[" * 500_000,
    "mappings": "{a: " * 200_000,
    "dashes": "- " * 500_000,
    "question marks": "? " * 500_000,
    "indentation": "".join(" " * depth + "a:\n" for depth in range(1400)),
    "alias bomb": bomb("[%s]"),
    "merge bomb": bomb("{<<: [%s]}"),
    "an alias of itself": "a: &a [*a]",
    "anchors": "".join(f"a{n}: &b{n} x\n" for n in range(30_000)),
    "a key twice": DOWNSTREAM + DOWNSTREAM,
    "a tab": "downstream:\n\turi: amqp://h\n",
    "two documents": DOWNSTREAM + "---\n" + DOWNSTREAM,
    "a tag": "!!python/object/apply:os.system [id]",
    "a long line": DOWNSTREAM + "x: " + "a" * 1_000_000,
    "a long key": DOWNSTREAM + "a" * 1_000_000 + ": 1",
    "an open quote": 'a: "' + "\\x41" * 200_000,
    "a long number": "a: " + "9" * 500_000,
    "many keys": DOWNSTREAM + "".join(f"k{n}: 1\n" for n in range(24_000)),
    "many mistakes": DOWNSTREAM + "upstreams:\n" + "".join(f" u{n}: {{uri: 'http://h', x: 1}}\n" for n in range(8_000)),
    "many upstreams": DOWNSTREAM + "upstreams:\n" + "".join(f" u{n}: {{uri: amqp://h}}\n" for n in range(40_000)),
    "a huge regular expression": UPSTREAM
    + "policies: {p: {pattern: '"
    + "(" * 50_000
    + "', definition: {federation-upstream: u}}}",
    "long secrets": DOWNSTREAM + "x: [" + ",".join(["'${env:LONG}'"] * 20_000) + "]",
}

EXPORTS: dict[str, bytes | str] = {
    "noise": noise(1_000_000),
    "objects": '{"a":' * 1_000_000,
    "lists": '{"a":' + "[" * 5_000_000,
    "a long number": '{"a":' + "9" * 5_000_000 + "}",
    "an open quote": '{"a":"' + "x" * 15_000_000,
    "not an object": "[" * 10,
    "wrong types": json.dumps({name: [1] * 40_000 for name in ("queues", "exchanges", "bindings", "policies")}),
    "many bad parameters": json.dumps(
        {
            "parameters": [
                {"component": "federation-upstream", "vhost": "/", "name": f"u{n}", "value": {"uri": n}}
                for n in range(40_000)
            ]
        }
    ),
}

LEGACY: dict[str, bytes | str] = {
    "empty": "",
    "noise": noise(100_000),
    "lists": "[" * 500_000,
    "tuples": "{" * 500_000,
    "binaries": "<<" * 250_000,
    "an open quote": '"' + "a" * 500_000,
    "a long atom": "a" * 500_000,
    "a long number": "[" + "9" * 500_000 + "].",
    "a long list": "[" + "a," * 250_000 + "a].",
    "a comment": "%" * 500_000,
    "dots": "." * 500_000,
    "UTF-16": "[{rabbitmq_federation, []}].".encode("utf-16"),
    "too large": " " * 5_000_000,
}


def assert_told_cheaply(done: Done, *files: str) -> None:
    assert done.status == 2
    assert done.out == ""
    place = "|".join(re.escape(file) for file in files)
    assert done.errors, "nothing was said"
    for line in done.errors:
        assert re.match(rf"(?:{place}):\d+:\d+: \S", line), line[:300]
        assert line.isprintable()
        assert len(line) < 400
    assert len(done.errors) <= 201
    assert done.cpu < MOST_CPU
    assert done.peak < MOST_MEMORY


def write(path: Path, content: bytes | str) -> None:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_that_is_none(tmp_path: Path, name: str) -> None:
    write(tmp_path / "agent.yaml", CONFIGURATIONS[name])
    done = federation_agent("validate", "-c", "agent.yaml", cwd=tmp_path, LONG="x" * 5_000)
    assert_told_cheaply(done, "agent.yaml")


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_that_is_none(tmp_path: Path, name: str) -> None:
    write(tmp_path / "agent.yaml", DOWNSTREAM + "definitions: {files: export.json}")
    write(tmp_path / "export.json", EXPORTS[name])
    assert_told_cheaply(federation_agent("validate", "agent.yaml", cwd=tmp_path), "export.json")


@pytest.mark.parametrize("name", LEGACY)
def test_a_2x_configuration_that_is_none(tmp_path: Path, name: str) -> None:
    write(tmp_path / "rabbitmq.config", LEGACY[name])
    assert_told_cheaply(federation_agent("import-legacy", "rabbitmq.config", cwd=tmp_path), "rabbitmq.config")


def huge(path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    return path


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def loop(path: Path) -> Path:
    path.symlink_to(path)
    return path


NO_FILES: dict[str, Callable[[Path], Path]] = {
    "100 MiB": huge,
    "a pipe": fifo,
    "a directory": lambda path: path.parent,
    "nothing": lambda path: path,
    "a link to itself": loop,
    "below a file": lambda _: Path(__file__, "x"),
    "/dev/zero": lambda _: Path("/dev/zero"),
    "memory": lambda _: Path("/proc/self/mem"),
    "an odd name": lambda path: path.with_name("a\n\033[31mb"),
    "a long name": lambda path: path.with_name("a" * 100 * 50),
}


@pytest.mark.parametrize("name", NO_FILES)
@pytest.mark.parametrize(
    "command", [("validate", "-c"), ("plan", "-c"), ("import-legacy",)], ids=lambda words: words[0]
)
def test_what_is_no_file(tmp_path: Path, command: tuple[str, ...], name: str) -> None:
    path = NO_FILES[name](tmp_path / "file")
    done = federation_agent(*command, path, cwd=tmp_path)
    assert done.status == 2
    assert len(done.errors) == 1
    assert ":1:1: " in done.err
    assert "\033" not in done.err
    assert done.wall < MOST_WALL * 5  # a busy machine; whoever waits for a pipe waits for ever
    assert done.cpu < MOST_CPU
    assert done.peak < MOST_MEMORY


@pytest.mark.parametrize("path", ["/dev/zero", "pipe"])
def test_references_to_what_is_no_file_dont_wait_either(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    write(tmp_path / "agent.yaml", f"downstream: {{uri: '${{file:{path}}}'}}\ndefinitions: {{files: [{path}]}}\n")
    done = federation_agent("plan", "-c", "agent.yaml", cwd=tmp_path)
    assert_told_cheaply(done, "agent.yaml")
    assert all("this is a pipe or device, not a file" in line for line in done.errors)
    assert len(done.errors) == 2
