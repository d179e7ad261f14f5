"""Whatever the file holds: a configuration, or one-line errors with their places; soon, and in little memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.definitions.document import yaml
from agent.definitions.schema import build_schema
from agent.definitions.sources.keeper import Keeper
from agent.definitions.sources.load import Configuration, load_configuration
from agent.definitions.sources.parameters import read_global
from agent.errors import ConfigurationError
from tests.unit.definitions.broker_answers import read_parameters, read_policies
from tests.unit.definitions.documents import DOWNSTREAM, write

ROOT = Path(__file__).parents[3]
EXAMPLE = (ROOT / "config" / "agent.example.yaml").read_bytes()


def judge(data: bytes) -> None:
    """Both ways of loading end in a configuration or in one-line errors, each with its place."""
    for strict in (True, False):
        with tempfile.TemporaryDirectory() as directory:
            path = write(Path(directory), data)
            try:
                configuration = load_configuration(path, environment={"HOME": "x"}, strict=strict)
                problems = configuration.warnings
                assert isinstance(configuration, Configuration)
            except ConfigurationError as error:
                problems = error.problems
                assert problems
        for problem in problems:
            assert re.match(re.escape(path) + r":\d+:\d+: \S", str(problem)), str(problem)
            assert str(problem).isprintable(), repr(str(problem))


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    judge(data)


@given(st.text(st.sampled_from("ab:-?,[]{}&*!|>'\"%@`#~<= \n\t\r$\u2028é\x85"), max_size=60))
def test_the_characters_of_yaml(text: str) -> None:
    judge(text.encode())
    judge((DOWNSTREAM + text).encode())


@given(st.data())
def test_a_good_file_with_something_cut_or_pushed_in(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(EXAMPLE)))
    cut = data.draw(st.integers(0, 40))
    pushed = data.draw(
        st.binary(max_size=6) | st.sampled_from([b"\t", b"- ", b": ", b"${env:HOME}", b"*a", b"{", b"\n"])
    )
    judge(EXAMPLE[:start] + pushed + EXAMPLE[start + cut :])


def known_words(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        words = set(schema.get("properties", {})) | {str(word) for word in schema.get("enum", [])}
        return words.union(*(known_words(value) for value in schema.values()))
    return set().union(*(known_words(item) for item in schema)) if isinstance(schema, list) else set()


WORDS = [*sorted(known_words(build_schema())), "all", "a", "", "amqp://h", "http://h", "${env:HOME}", "${env:NO}", "("]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), inner),
    max_leaves=20,
)
SECTIONS = st.dictionaries(st.sampled_from(sorted(build_schema()["properties"])), VALUES)


@given(SECTIONS)
def test_known_keys_with_any_values(document: dict[str, Any]) -> None:
    judge(json.dumps({"downstream": {"uri": "amqp://h"}, **document}).replace("NaN", ".nan").encode())


@given(
    st.lists(st.fixed_dictionaries({"component": st.sampled_from(["federation-upstream", "shovel"]), "value": VALUES})),
    VALUES,
    VALUES,
)
def test_whatever_a_broker_answers(parameters: list[dict[str, Any]], definition: Any, global_value: Any) -> None:
    of_vhost = [{"vhost": "/", "name": "n", **parameter} for parameter in parameters]
    keeper = Keeper()
    keeper.take("parameters", lambda: read_parameters("http://h:1", of_vhost))
    policy = {"vhost": "/", "name": "p", "pattern": "", "definition": definition}
    keeper.take("policies", lambda: read_policies("http://h:1", [policy]))
    keeper.take("global", lambda: read_global("http://h:1", global_value))
    for problem in (*keeper.problems, *keeper.current.warnings):
        assert str(problem).startswith("http://h:1 ")
        assert str(problem).isprintable()


# What one file may cost: CPU time, which a busy machine doesn't change, and memory.
CPU_SECONDS = 6
MEMORY_KIB = 200 * 1024
MEASURE = """\
import os, resource, sys
from pathlib import Path
from agent.definitions.sources.load import load_configuration
from agent.errors import ConfigurationError
for path in sys.stdin:
    if os.fork():
        _, status = os.wait()
        print(f"ended with {status}\\n", flush=True)
        continue
    try:
        load_configuration(path.rstrip(), environment={}, strict=False)
    except ConfigurationError as error:
        print(error.problems[0])
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(line for line in status if line.startswith("VmHWM"))  # of this program alone
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(used.ru_utime + used.ru_stime, peak.split()[1], flush=True)
    os._exit(0)
"""


class Loading:
    """A process that has imported what loads a file, and forks one for each."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def measure(self, path: str) -> str:
        """What the loading said; it may not have cost too much."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None and answers is not None
        print(path, file=asked, flush=True)
        *lines, last, end = iter(answers.readline, "\n")
        assert end == "ended with 0\n", (lines, last)
        seconds, kib = last.split()
        assert float(seconds) < CPU_SECONDS
        assert int(kib) < MEMORY_KIB
        return "".join(lines)


@pytest.fixture(scope="module")
def loading() -> Iterator[Loading]:
    command, pipe = [sys.executable, "-W", "error", "-c", MEASURE], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, cwd=ROOT) as process:
        yield Loading(process)


def repeat(unit: str, before: str = "", after: str = "") -> str:
    """As much as a file may hold."""
    room = yaml.MAX_BYTES - len(before) - len(after)
    return before + unit * (room // len(unit.encode())) + after


def bomb() -> str:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]" for i in range(20)]
    return "\n".join(lines)


def merges() -> str:
    keys = ", ".join(f"k{number}: 1" for number in range(1000))
    return f"a: &a {{{keys}}}\n" + "".join(f"b{number}: {{<<: *a}}\n" for number in range(48))


def references() -> str:
    upstreams = "".join(f"  upstream-{number:05}: {{uri: amqp://h}}\n" for number in range(5000))
    members = ", ".join(f"{{upstream: upstraem-{number:05}}}" for number in range(5000))
    return f"{DOWNSTREAM}upstreams:\n{upstreams}upstream-sets: {{s: [{members}]}}\n"


def patterns() -> str:
    entry = "  p{}: {{pattern: '{}{}', definition: {{federation-upstream-set: all}}}}\n"
    return DOWNSTREAM + "policies:\n" + "".join(entry.format(n, n, "a|" * 500) for n in range(900))


NASTY: dict[str, Callable[[], str]] = {
    "brackets": lambda: "[" * 1_000_000,
    "nested blocks": lambda: repeat("- "),
    "flow scalars": lambda: repeat("a,", "[", "]"),
    "flow mappings": lambda: repeat("{},", "[", "]"),
    "nested keys": lambda: repeat("[a: b,"),
    "one key often": lambda: repeat("k: 1\n", DOWNSTREAM),
    "alias bomb": bomb,
    "merges": merges,
    "aliases": lambda: repeat("- *a\n", "- &a {x: 1}\n"),
    "one text": lambda: repeat("x", DOWNSTREAM + "upstreams: '", "'"),
    "one key": lambda: repeat("x", "", ": 1"),
    "one address": lambda: repeat("x", "downstream: {uri: 'amqp://", "'}"),
    "addresses": lambda: "downstream: {uri: [" + "'amqp://h'," * 49_000 + "]}",
    "bad addresses": lambda: "downstream: {uri: [" + "'amqp//h'," * 49_000 + "]}",
    "references": references,
    "patterns": patterns,
    "unknown variables": lambda: repeat("${env:X}", "downstream: {uri: '", "'}"),
    "unclosed": lambda: repeat("${", "downstream: {uri: '", "'}"),
    "a device": lambda: DOWNSTREAM + "upstreams: {a: {uri: '${file:/dev/zero}'}}",
    "blank lines": lambda: repeat("\n"),
    "wide characters": lambda: repeat("😀", DOWNSTREAM + "upstreams: '", "'"),
    "vhosts": lambda: DOWNSTREAM + "vhosts:\n" + "".join(f"  v{n}: {{upstreams: {{a: 1}}}}\n" for n in range(9_000)),
}


@pytest.mark.parametrize("make", NASTY.values(), ids=NASTY)
def test_the_worst_file_of_a_kind_costs_little(tmp_path: Path, loading: Loading, make: Callable[[], str]) -> None:
    path = write(tmp_path, make())
    assert all(line.startswith(f"{path}:") for line in loading.measure(path).splitlines())


def test_a_file_of_100_mb_costs_little(tmp_path: Path, loading: Loading) -> None:
    path = write(tmp_path, "a: b\n")
    os.truncate(path, 100_000_000)
    assert loading.measure(path) == f"{path}:1:1: the file is larger than 1 MiB\n"
