"""`${env:…}` and `${file:…}`: what they give, what they refuse, what is remembered."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent.definitions.document.interpolate import MAX_VALUE_BYTES, Interpolator
from tests.unit.definitions.documents import DOWNSTREAM, complaints, load, write

ENVIRONMENT = {"USER": "u", "EMPTY": "", "HOST": "h.local"}


def interpolator(directory: Path) -> tuple[Interpolator, list[str]]:
    said: list[str] = []
    return Interpolator(
        ENVIRONMENT, str(directory), lambda _, text: said.append(text), lambda _, text: said.append(text)
    ), said


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ("plain", "plain"),
        ("${env:USER}", "u"),
        ("amqp://${env:USER}@${env:HOST}:5672", "amqp://u@h.local:5672"),
        ("${env:EMPTY}", ""),
        ("$${env:USER}", "${env:USER}"),
        ("$", "$"),
        ("$x {y}", "$x {y}"),
    ],
)
def test_resolves(tmp_path: Path, text: str, resolved: str) -> None:
    subject, said = interpolator(tmp_path)
    assert subject.resolve(text, ("key",)) == resolved
    assert not said


def test_files_count_from_the_directory_and_lose_one_newline(tmp_path: Path) -> None:
    write(tmp_path, "s3cret\n", "token")
    write(tmp_path, "windows\r\n", "crlf")
    subject, _ = interpolator(tmp_path)
    assert subject.resolve("${file:token}/${file:crlf}", ("key",)) == "s3cret/windows"
    assert subject.files == {str(tmp_path / "token"), str(tmp_path / "crlf")}
    assert subject.raw == {("key",): "${file:token}/${file:crlf}"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("${env:NOT_SET}", "${env:NOT_SET}: the environment variable isn't set"),
        ("${file:missing}", "${file:missing}: there is no such file"),
        ("${file:.}", "${file:.}: this is a directory; name a file in it"),
        ("${file:latin}", "${file:latin}: the file is not UTF-8"),
        ("${file:large}", "${file:large}: the file is larger than 64 KiB"),
    ],
)
def test_reports_what_has_no_value_here(tmp_path: Path, text: str, complaint: str) -> None:
    write(tmp_path, b"\xe9", "latin")
    write(tmp_path, b"x" * (MAX_VALUE_BYTES + 1), "large")
    subject, said = interpolator(tmp_path)
    subject.resolve(text, ("key",))
    assert said == [complaint]
    assert subject.unresolved == {("key",)}


@pytest.mark.parametrize("text", ["${hunter2}", "${env:", "${", "${env:}", "${vault:x}", "a ${ b"])
def test_refuses_what_cant_be_meant_without_quoting_it(tmp_path: Path, text: str) -> None:
    subject, said = interpolator(tmp_path)
    subject.resolve(text, ("key",))
    assert said == ["an invalid ${…}; write ${env:NAME} or ${file:PATH}, or $${ for a literal ${"]


def test_what_is_repeated_without_end_is_refused(tmp_path: Path) -> None:
    write(tmp_path, b"x" * MAX_VALUE_BYTES, "large")
    subject, said = interpolator(tmp_path)
    for number in range(100):
        subject.resolve("${file:large}", (number,))
    assert "longer than" in said[0]


def test_strictly_a_missing_value_is_an_error_and_leniently_a_warning(tmp_path: Path) -> None:
    text = "downstream: {uri: 'amqp://${env:USER}:${env:PASSWORD}@${env:HOST}:${env:PORT}'}\n"
    assert complaints(tmp_path, text) == [
        f"1:19: ${{env:{name}}}: the environment variable isn't set" for name in ("USER", "PASSWORD", "HOST", "PORT")
    ]
    assert all("warning: " in line for line in complaints(tmp_path, text, strict=False))
    assert load(tmp_path, text, strict=False).settings.downstream.uris[0].connect_port == 1


@pytest.mark.parametrize(
    "section",
    [
        "upstreams: {a: {uri: '${env:X}'}}",
        "upstreams: {a: {uri: ['${env:X}', '${env:Y}://h']}}",
        "upstreams: {a: {host: h, mechanism: '${env:X}', protocol: '${env:X}'}}",
        "upstreams: {a: {host: h, protocol: '${env:X}', ssl-options: {depth: 1}}}",
        "upstreams: {a: {uri: amqp://h, ack-mode: '${env:X}'}}",
        "exchanges: {a: {type: topic, upstream-set: all, arguments: {upstream-set: '${env:X}'}}}",
        "policies: {a: {pattern: '(${env:X}', definition: {federation-upstream-set: all}}}",
        "policies: {a: {pattern: x, definition: {federation-upstream: '${env:X}'}}}",
        "agent: {http: {listen: '${env:X}', token: '${env:X}'}}",
        "agent: {http: {listen: '0.0.0.0:${env:X}', token: '${env:X}'}}",
        "exchanges: {a: {type: '${env:X}'}}",
        "shovels: {a: {src-uri: '${env:X}', src-queue: q, dest-uri: '${env:X}', src-delete-after: '${env:X}'}}",
        "definitions: {files: '${env:X}'}",
    ],
)
def test_leniently_nothing_else_is_said_about_a_value_that_isnt_known(tmp_path: Path, section: str) -> None:
    found = complaints(tmp_path, DOWNSTREAM + section, strict=False)
    assert found
    assert all("warning: ${env:" in line for line in found), found


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ("upstreams: {a: {host: h, pasword: '${env:X}'}}", "2:26: unknown key 'pasword' in an upstream; did you mean"),
        ("upstreams: {a: {uri: '${env:X}', host: '${env:X}'}}", "2:34: 'host' is given together with 'uri'"),
        ("uptreams: '${env:X}'", "2:1: unknown key 'uptreams'"),
        ("vhosts: {v: {uptreams: '${env:X}'}}", "2:14: unknown key 'uptreams' in a vhost"),
    ],
)
def test_leniently_a_key_is_judged_whatever_its_value(tmp_path: Path, section: str, complaint: str) -> None:
    found = complaints(tmp_path, DOWNSTREAM + section, strict=False)
    assert next(line for line in found if "warning" not in line).startswith(complaint)


@pytest.mark.parametrize("count", [3_000, pytest.param(15_000, marks=pytest.mark.thorough)])
def test_many_values_that_arent_known_are_soon_judged(tmp_path: Path, count: int) -> None:
    members = "".join(f"  - {{upstream: '${{env:U{number}}}'}}\n" for number in range(count))
    began = time.process_time()
    complaints(tmp_path, f"{DOWNSTREAM}upstream-sets:\n  s:\n{members}", strict=False)
    assert time.process_time() - began < 1 + count / 3_750


def test_leniently_the_downstream_itself_may_be_unknown(tmp_path: Path) -> None:
    for value in ("${env:X}", "${env:X}://h", "a${env:X}"):
        configuration = load(tmp_path, f"downstream: {{uri: '{value}', management: '{value}'}}", strict=False)
        assert configuration.settings.downstream.uris


def test_references_stand_in_values_and_not_in_keys(tmp_path: Path) -> None:
    assert complaints(tmp_path, DOWNSTREAM + "upstreams:\n  '${env:HOST}': {uri: amqp://h}\n") == [
        "3:3: ${...} is allowed in values only, not in keys"
    ]


def test_a_change_of_the_file_is_seen_by_the_next_load(tmp_path: Path) -> None:
    text = "downstream: {uri: 'amqp://u:${file:password}@h'}"
    found = []
    for password in ("one", "two"):
        write(tmp_path, password, "password")
        found.append(load(tmp_path, text))
    assert [each.settings.downstream.uris[0].login[1].reveal() for each in found] == ["one", "two"]
    assert found[0].files == {str(tmp_path / "password"), str(tmp_path / "agent.yaml")}
