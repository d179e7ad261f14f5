from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent.definitions.sources.legacy import LegacyError, import_legacy
from agent.definitions.sources.legacy.erlang import Atom, Binary, List, String, Term, Tuple
from agent.definitions.sources.load import load_configuration
from tests.unit.definitions.legacy.erlang import write
from tests.unit.definitions.legacy.federations import (
    ANY_SETTINGS,
    SET_NAMES,
    TEXTS,
    federations,
    named_pairs,
    proplist,
)

FILE = "rabbitmq.config"
SECRET = "fg7/kqx zwj"


def configuration(settings: Term) -> bytes:
    return write(Tuple((Atom("rabbitmq_federation"), settings))).encode()


def outcome(data: bytes) -> str | LegacyError:
    try:
        return import_legacy(data, file=FILE)
    except LegacyError as error:
        return error


def escaped(text: str) -> str:
    return text.replace("${", "$${")


@given(federations())
def test_the_agent_takes_what_was_imported(settings: Term) -> None:
    imported = import_legacy(configuration(settings), file=FILE)
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        Path(file.name).write_text(imported, encoding="utf-8")
        load_configuration(file.name, environment={}, strict=False)


@given(
    names=st.lists(SET_NAMES, min_size=5, max_size=5, unique=True),
    texts=st.lists(TEXTS, min_size=4, max_size=4),
    type_=st.sampled_from(["direct", "topic", "x-${random}"]),
    file=TEXTS,
)
def test_names_and_texts_arrive_unchanged(names: list[str], texts: list[str], type_: str, file: str) -> None:
    connection, upstream_set, exchange, vhost, argument = names
    node, user, remote, value = texts
    declared = proplist(
        exchange=String(exchange),
        virtual_host=String(vhost),
        type=String(type_),
        upstream_set=String(upstream_set),
        arguments=List((Tuple((Binary(argument.encode()), Atom("longstr"), String(value))),)),
    )
    member = proplist(connection=String(connection), exchange=Binary(remote.encode()))
    settings = proplist(
        exchanges=List((declared,)),
        upstream_sets=named_pairs({upstream_set: List((member,))}),
        connections=named_pairs({connection: proplist(host=String("h"), username=String(user))}),
        local_nodename=String(node),
    )
    imported = yaml.safe_load(import_legacy(configuration(settings), file=file))
    definitions = imported if vhost == "/" else imported["vhosts"][vhost]
    arguments = {argument: escaped(value)}
    assert imported["agent"] == {"name": escaped(node)}
    assert definitions["upstreams"] == {
        connection: {"host": "h", "username": escaped(user), "reconnect-delay": 1},
    }
    assert definitions["upstream-sets"] == {
        upstream_set: [{"upstream": escaped(connection), "exchange": escaped(remote)}],
    }
    assert definitions["exchanges"] == {
        exchange: {"type": escaped(type_), "upstream-set": escaped(upstream_set), "arguments": arguments},
    }


@given(ANY_SETTINGS)
def test_any_settings_are_imported_or_refused(settings: Term) -> None:
    found = outcome(configuration(settings))
    if isinstance(found, LegacyError):
        assert all(problem.place.line and "\n" not in str(problem) for problem in found.problems)
    else:
        assert isinstance(yaml.safe_load(found), dict)


@given(st.binary())
def test_any_bytes_are_imported_or_refused(data: bytes) -> None:
    outcome(data)


@pytest.mark.parametrize(
    "connection",
    [
        '[{host, "h"}, {password, @}]',
        '[{host, "h"}, {protocol, "amqps"}, {ssl_options, [{password, @}]}]',
        '[{host, "h"}, {password, {@}}, {ssl_options, [{password, @, @}]}]',
        '[{host, "h"}, {password, [@, 1]}, {port, @}, {protocol, @}, {passwort, @}]',
        '[{host, "h"}, {password, a, @}, {@, @}, @]',
        '[{host, "h"}, {password}, @]',
        '[{host, "h"}, @]',
        '[{host, "h"}, {password, @ @}]',
        '[{host, "h"}, {password, @, {port}]',
        "{password, @}",
        "@",
    ],
)
@pytest.mark.parametrize("quotes", ['"{}"', "'{}'", '<<"{}">>', '"{}', "{}", '"{}" "'])
def test_secrets_are_told_neither_by_the_yaml_nor_by_an_error(connection: str, quotes: str) -> None:
    written = connection.replace("@", quotes.format(SECRET))
    found = outcome(f'{{rabbitmq_federation, [{{connections, [{{"c", {written}}}]}}]}}'.encode())
    for part in SECRET.split():
        assert part not in str(found)
        assert part not in repr(found)
