"""Secrets that stand in the configuration are warned of; those that it only refers to are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.definitions.documents import DOWNSTREAM, complaints

S = "sentinel7"
ENVIRONMENT = {"P": "p", "PORT": "5672"}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (f"downstream: {{uri: 'amqp://u:{S}@h'}}", "1:19"),
        (f"downstream: {{uri: [amqp://h, 'amqp://u:{S}@h']}}", "1:30"),
        (f"downstream: {{uri: amqp://h, management: 'http://u:{S}@h'}}", "1:41"),
        (DOWNSTREAM + f"agent: {{http: {{token: {S}}}}}", "2:23"),
        (DOWNSTREAM + f"agent: {{peers: 'http://agent:{S}@h'}}", "2:16"),
        (DOWNSTREAM + f"agent: {{peers: ['http://agent:{S}@h']}}", "2:17"),
        (DOWNSTREAM + f"upstreams: {{a: {{uri: 'amqp://u:{S}@h'}}}}", "2:22"),
        (DOWNSTREAM + f"upstreams: {{a: {{uri: 'amqp://u:{S}@h:${{env:PORT}}'}}}}", "2:22"),
        (DOWNSTREAM + f"upstreams: {{a: {{uri: 'amqps://h?password={S}&certfile=c&keyfile=k'}}}}", "2:22"),
        (DOWNSTREAM + f"upstreams: {{a: {{host: h, password: {S}}}}}", "2:36"),
        (DOWNSTREAM + f"vhosts: {{v: {{upstreams: {{a: {{host: h, password: {S}}}}}}}}}", "2:49"),
        ("downstream: {uri: 'amqp://u:guest@h', management: 'http://guest:guest@h'}", "1:19"),
        ("downstream: {uri: 'amqp://guest:guest@h', management: 'http://u:guest@h'}", "1:55"),
        (DOWNSTREAM + "upstreams: {a: {host: h, password: guest, username: u}}", "2:36"),
        (DOWNSTREAM + "upstreams: {a: {host: h, username: '${env:P}', password: guest}}", "2:58"),
        (DOWNSTREAM + "upstreams: {a: {host: h, protocol: amqps, ssl-options: {password: guest}}}", "2:67"),
        (DOWNSTREAM + "agent: {http: {token: guest}}", "2:23"),
        (DOWNSTREAM + f"shovels: {{s: {{src-uri: 'amqp://u:{S}@h', src-queue: q, dest-uri: amqp://h}}}}", "2:24"),
    ],
)
def test_a_secret_in_the_file_is_warned_of_and_not_shown(tmp_path: Path, text: str, where: str) -> None:
    found = [line for line in complaints(tmp_path, text, environment=ENVIRONMENT) if "is written here" in line]
    assert len(found) == 1
    assert found[0].startswith(f"{where}: warning: a ")
    assert "write ${env:NAME} or ${file:PATH}" in found[0]
    assert S not in found[0]


@pytest.mark.parametrize(
    "text",
    [
        "downstream: {uri: 'amqp://guest:guest@h', management: 'http://guest:guest@h'}",
        "downstream: {uri: 'amqp://u:${env:P}@h', management: 'http://u:${file:p}@h'}",
        "downstream: {uri: '${env:P}://u@h:${env:PORT}'}".replace("${env:P}:", "amqp:"),
        DOWNSTREAM + "agent: {http: {token: '${env:P}'}}",
        DOWNSTREAM + "agent: {peers: ['http://agent:${env:P}@h', 'https://h']}",
        DOWNSTREAM + "upstreams: {a: {host: h, password: '${file:p}'}}",
        DOWNSTREAM + "upstreams: {a: {host: h, password: guest}, b: {host: h, username: guest, password: guest}}",
        DOWNSTREAM + "exchanges: {x: {type: topic, arguments: {password: sentinel7}}}",
    ],
)
def test_a_reference_is_not(tmp_path: Path, text: str) -> None:
    (tmp_path / "p").write_text("p")
    assert not [line for line in complaints(tmp_path, text, environment=ENVIRONMENT) if "is written here" in line]
