"""A migration file is read with all its problems, and agrees with the published schema."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml as pyyaml
from jsonschema import Draft202012Validator

from agent.core.migration.objects import ObjectKind
from agent.core.migration.selection import MovedBy
from agent.definitions.models.migration import MigrationModel
from agent.definitions.schema import build_schema
from agent.definitions.sources.load import Migration, load_migration
from agent.errors import ConfigurationError

ENDS = """\
source: {uri: amqp://u:p-1@old, management: "http://u:${env:SECRET}@old:15672"}
target: {uri: [amqp://new, amqp://newer], management: http://u:p@new:15672}
"""
VALIDATOR = Draft202012Validator(build_schema(MigrationModel, "migration"))


def load(tmp_path: Path, text: str) -> Migration:
    path = tmp_path / "m.yaml"
    path.write_text(text)
    return load_migration(str(path), environment={"SECRET": "s-1"})


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as error:
        load(tmp_path, text)
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in error.value.problems]


def test_a_file(tmp_path: Path) -> None:
    text = ENDS + (
        "vhosts:\n  a:\n    queues: {^o: {how: queue-link, convert: quorum}, ^r: , ^s: shovel}\n"
        "    exchanges: [^x, ^y]\n    policies: []\n  b:\n"
    )
    found = load(tmp_path, text)
    assert not list(VALIDATOR.iter_errors(pyyaml.safe_load(text)))
    chosen = found.vhosts["a"].choices
    queues = [(each.pattern.text, each.moved_by, each.to_quorum) for each in chosen[ObjectKind.QUEUE]]
    assert queues == [("^o", MovedBy.QUEUE_LINK, True), ("^r", MovedBy.SHOVEL, False), ("^s", MovedBy.SHOVEL, False)]
    assert [each.pattern.text for each in chosen[ObjectKind.EXCHANGE]] == ["^x", "^y"]
    assert list(chosen[ObjectKind.POLICY]) == []
    assert [each.pattern.text for each in found.vhosts["b"].choices[ObjectKind.QUEUE]] == [".*"]
    assert chosen[ObjectKind.QUEUE][1].place.line == 5
    assert found.source.management[0].password.reveal() == "s-1"
    assert len(found.target.uris) == 2
    assert "s-1" not in repr(found) and "p-1" not in repr(found)


def test_an_empty_list_of_queues_is_none(tmp_path: Path) -> None:
    choices = load(tmp_path, ENDS + "vhosts: {a: {queues: {}}}").vhosts["a"].choices
    assert list(choices[ObjectKind.QUEUE]) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("vhosts: {a: {queues: {^o: {how: both}}}}", "m.yaml:3:33: vhosts.a.queues.^o.how: must be 'shovel' or"),
        ("vhosts: {a: {queues: {'(': shovel}}}", "m.yaml:3:28: vhosts.a.queues.(: not a regular expression"),
        ("vhosts: {a: {exchanges: ['(']}}", "m.yaml:3:26: vhosts.a.exchanges: not a regular expression"),
        ("vhosts: {a: {queue: {}}}", "m.yaml:3:14: unknown key 'queue' in a vhost; did you mean 'queues'?"),
        ("vhosts: {}", "m.yaml:3:9: vhosts: must not be empty"),
        ("", "m.yaml:1:1: the file needs the key 'vhosts'"),
        ("vhosts: {a: }\ntargets: {}", "m.yaml:4:1: unknown key 'targets' in the file"),
        ("vhosts: {a: {convert: quorum}}", "m.yaml:3:14: unknown key 'convert' in a vhost"),
        (
            "vhosts: {a: {queues: {^o: {convert: classic}}}}",
            "m.yaml:3:37: vhosts.a.queues.^o.convert: must be 'quorum'",
        ),
    ],
)
def test_what_is_wrong(tmp_path: Path, text: str, found: str) -> None:
    [problem] = problems(tmp_path, ENDS + text)
    assert problem.startswith(found)
    document = pyyaml.safe_load(ENDS + text)
    assert list(VALIDATOR.iter_errors(document)) or "(" in text, "but for the syntax of patterns"


def test_ends_and_secrets(tmp_path: Path) -> None:
    text = "source: {uri: 'amqp:///v', management: 'http://${env:UNSET}@x'}\ntarget: {uri: http://x}\nvhosts: {a: }\n"
    found = problems(tmp_path, text)
    assert [each.partition(": ")[2] for each in found] == [
        "uri: it needs a host",
        "warning: uri: the path is ignored; vhosts are those of the file",
        "${env:UNSET}: the environment variable isn't set",
        *[each.partition(": ")[2] for each in found[3:]],
    ]
    assert any("a cluster needs the key 'management'" in each for each in found)
    assert problems(tmp_path, "- a") == ["m.yaml:1:1: expected a mapping of sections, got a list"]
    assert problems(tmp_path, "") == [
        "m.yaml:1:1: the file is empty; it needs the keys 'source', 'target' and 'vhosts'"
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("{verify: verify_none}", "warning: ssl-options do nothing: no address is amqps"),
        ("{keyfile: /k}", "keyfile is given without certfile"),
    ],
)
def test_tls_settings_are_checked_as_those_of_the_downstream(tmp_path: Path, options: str, words: str) -> None:
    text = ENDS.replace("{uri: amqp://u:p-1@old, ", f"{{ssl-options: {options}, uri: amqp://u:p-1@old, ")
    try:
        found = [str(each) for each in load(tmp_path, text + "vhosts: {a: }").warnings]
    except ConfigurationError as error:
        found = [str(each) for each in error.problems]
    assert any(words in each for each in found), found
