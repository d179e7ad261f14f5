"""No secret's value in anything that is shown, whatever is wrong around it."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest
import yaml

from agent.definitions.sources.exports import read_export
from agent.definitions.sources.load import load_configuration
from agent.definitions.sources.parameters import read_global
from agent.definitions.sources.written_secrets import without_secrets
from agent.errors import ConfigurationError
from tests.unit.definitions.broker_answers import read_parameters
from tests.unit.definitions.documents import DOWNSTREAM, write

S = "sentinel7"
ENVIRONMENT = {"SECRET": S, "SPLIT": f"{S}@{S}#{S} /{S}", "MANY": f"{S}\n{S}"}

GOOD = [
    f"downstream: {{uri: 'amqp://u:{S}@h', management: 'http://u:{S}@h'}}",
    "downstream: {uri: 'amqp://${env:SECRET}:${env:SECRET}@h', management: 'http://${env:SECRET}:${env:SECRET}@h'}",
    DOWNSTREAM + f"agent: {{http: {{token: {S}}}}}",
    DOWNSTREAM + "agent: {http: {token: '${file:secret}'}}",
    DOWNSTREAM + f"upstreams: {{a: {{host: h, password: {S}, protocol: amqps, ssl-options: {{password: {S}}}}}}}",
    DOWNSTREAM
    + f"upstreams: {{a: {{uri: 'amqps://u:{S}@h?password={S}&certfile=c&keyfile=k&{S}=1&verify=verify_none'}}}}",
    DOWNSTREAM + f"upstreams: {{a: {{uri: 'amqp://u:{S}@h', management: 'https://u:{S}@h?password={S}&{S}=1'}}}}",
    DOWNSTREAM + f"shovels: {{s: {{src-uri: 'amqp://u:{S}@h/', src-queue: q, dest-uri: 'amqp://u:{S}@h/'}}}}",
]
BAD = [
    f"downstream: {{uri: 'amqp://u:{S}@{S}@h'}}",
    f"downstream: {{uri: 'amqp://u:{S}#{S}@h', management: 'https//u:{S}@h'}}",
    f"downstream: {{uri: 'amqp://u:p {S}@h'}}",
    f"downstream: 'amqp://u:{S}@h'",
    f"'amqp://u:{S}@h': 1",
    f"'amqp://u:{S}@h'",
    f"amqp://u:{S}@h: {{a: {S}: b}}",
    f"downstream: {{uri: {{'amqp://u:{S}@h': 1}}}}",
    f"downstream: {{uri: !{S} x}}",
    f"downstream: {{uri: !{S}!x y}}",
    f"downstream: {{uri: *{S}}}",
    f"downstream: {{uri: '{S}",
    f'downstream: {{uri: "\\{S}"}}',
    f"%TAG ! {S}\n--- {{}}",
    f"downstream: {{uri: [amqp://h, 'amqp://u:{S}%@h']}}",
    f"downstream: {{uri: 'amqp://h:{S}'}}",
    f"downstream: {{uri: 'amqp://h?heartbeat={S}&verify={S}&auth_mechanism={S}'}}",
    f"downstream: {{uri: '${{{S}}}'}}",
    "downstream: {uri: '${env:SPLIT}'}",
    "downstream: {uri: 'amqp://u:${env:SPLIT}@h'}",
    "downstream: {uri: '${env:MANY}', management: '${env:SPLIT}'}",
    DOWNSTREAM + f"agent: {{http: {{token: [{S}]}}}}",
    DOWNSTREAM + f"agent: {{http: {{tokn: {S}, listen: {S}}}, stall-after: {S}, status-export: {S}}}",
    DOWNSTREAM + "agent: {http: {listen: '${env:SECRET}'}, name: ['${env:SECRET}'], stall-after: '${env:SECRET}'}",
    DOWNSTREAM + "agent: {status-export: {directory: 1, rotate: '${env:SECRET}'}}",
    DOWNSTREAM + f"upstreams: {{a: {{host: h, password: [{S}], port: {S}, mechanism: {S}, heartbeat: {S}}}}}",
    DOWNSTREAM + f"upstreams: {{a: {{uri: 'amqp://u:{S}@h', management: ['http://u:{S}#{S}@h', '{S}:{S}@h', 5]}}}}",
    DOWNSTREAM + f"upstreams: {{a: {{host: 'u:{S}@h', ssl-options: {{password: {{{S}: 1}}, depth: {S}}}}}}}",
    DOWNSTREAM + f"upstreams: {{a: 'amqp://u:{S}@h', b: {{uri: 'amqp://u:{S}@h', max-hops: {S}, ack-mode: {S}}}}}",
    DOWNSTREAM + "upstreams: {a: {uri: '${file:secret}', prefetch-count: '${env:SECRET}', expires: '${env:SECRET}'}}",
    DOWNSTREAM + "upstream-sets: {s: [{upstream: '${env:SECRET}'}, '${env:SECRET}']}",
    DOWNSTREAM + "policies: {p: {pattern: '(?P<${env:SECRET}', apply-to: '${env:SECRET}', definition: {}}}",
    DOWNSTREAM + "policies: {p: {pattern: x, definition: {federation-upstream-pattern: '(?P<a>)(?P=${env:SECRET})'}}}",
    DOWNSTREAM + "policies: {p: {pattern: x, definition: {federation-upstream-set: '${env:SECRET}'}}}",
    DOWNSTREAM + "policies: {p: {pattern: '\\p{${env:SECRET}}', definition: {federation-upstream-set: all}}}",
    DOWNSTREAM + "policies: {p: {pattern: '[[:${env:SECRET}:]]', definition: {federation-upstream: all}}}",
    DOWNSTREAM + "exchanges: {e: {type: '${env:SECRET}', upstream-set: '${env:SECRET}', arguments: '${env:SECRET}'}}",
    DOWNSTREAM + f"shovels: {{s: {{src-uri: 'amqp://u:{S}@@h', dest-uri: 'http://u:{S}@h', src-delete-after: {S}}}}}",
    DOWNSTREAM + "definitions: {files: ['${env:SPLIT}'], management: '${env:SECRET}'}",
]


def shown(directory: Path, text: str, *, strict: bool) -> str:
    """Everything that anybody may see of a load."""
    write(directory, S, "secret")
    try:
        found = load_configuration(write(directory, text), environment=ENVIRONMENT, strict=strict)
    except ConfigurationError as error:
        return "\n".join([str(error), repr(error), repr(error.problems), *traceback.format_exception(error)])
    return "\n".join([str(found), repr(found), repr(found.settings.downstream.uris[0].safe), *map(str, found.warnings)])


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("text", GOOD, ids=range(len(GOOD)))
def test_good_files(tmp_path: Path, text: str, strict: bool) -> None:
    said = shown(tmp_path, text, strict=strict)
    assert S not in said
    assert "Configuration(" in said


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_bad_files(tmp_path: Path, text: str, strict: bool) -> None:
    said = shown(tmp_path, text, strict=strict)
    assert S not in said
    assert "ConfigurationError" in said


def test_the_path_of_an_export(tmp_path: Path) -> None:
    (tmp_path / S).mkdir()
    write(tmp_path / S, "{", "export.json")
    said = shown(tmp_path, DOWNSTREAM + "definitions: {files: ['${env:SECRET}/export.json']}", strict=True)
    assert "${env:SECRET}/export.json:1:2: not JSON" in said
    assert S not in said


def test_what_brokers_and_exports_hold() -> None:
    value = {"uri": f"amqp://u:{S}@@h", "max-hops": S, f"amqp://u:{S}@h": S}
    parameter = {"vhost": "/", "component": "federation-upstream", "name": "a", "value": value}
    for attempt in (
        lambda: read_parameters("http://h", [parameter]),
        lambda: read_global("http://h", {"upstreams": {"a": value}}),
        lambda: read_export(json.dumps({"parameters": [parameter]}).encode(), "f"),
        lambda: read_export(json.dumps({"parameters": [parameter]}).encode()[:-1], "f"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            attempt()
        assert S not in "".join(traceback.format_exception(caught.value)) + repr(caught.value)


@pytest.mark.parametrize("text", [*GOOD, *BAD])
def test_a_configuration_for_others_to_read(tmp_path: Path, text: str) -> None:
    """Whether it is valid or not."""
    try:
        told = without_secrets(write(tmp_path, text))
    except ConfigurationError as error:
        told = str(error)
    assert S not in told


def test_what_others_may_read_of_a_configuration(tmp_path: Path) -> None:
    text = """\
agent: {group: dc2, http: {token: "${file:/run/token}", listen: 0.0.0.0:9419}}  # a comment
downstream: {uri: "amqps://u:${env:PW}@rabbit.dc2:5671/%2f?password=p&verify=verify_none"}
upstreams: {dc1: {uri: ["amqp://u:a?b@h", "amqp://u:p@h:5672"], max-hops: 2, pasword: 1234, password: x}}
shovels: {s: {src-protocol: amqp10, src-uri: "amqp://u:p@h?hostname=x", src-address: /queues/q, dest-protocol: local}}
"""
    assert yaml.safe_load(without_secrets(write(tmp_path, text))) == {
        "agent": {"group": "dc2", "http": {"token": "${file:/run/token}", "listen": "0.0.0.0:9419"}},
        "downstream": {"uri": "amqps://rabbit.dc2:5671/%2f"},
        "upstreams": {
            "dc1": {"uri": ["***", "amqp://h:5672"], "max-hops": 2, "pasword": "***", "password": "***"},
        },
        "shovels": {
            "s": {
                "src-protocol": "amqp10",
                "src-uri": "amqp://h",
                "src-address": "/queues/q",
                "dest-protocol": "local",
            },
        },
    }
