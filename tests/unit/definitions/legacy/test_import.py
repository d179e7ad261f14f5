from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.definitions.sources.legacy import LegacyError, import_legacy

FILE = "rabbitmq.config"
HERE = Path(__file__).parent


def convert(settings: str) -> str:
    return import_legacy(f"[{{rabbitmq_federation, [{settings}]}}].".encode(), file=FILE)


def load(settings: str) -> Any:
    return yaml.safe_load(convert(settings))


def upstream(more: str, name: str = "a") -> Any:
    return load(f'{{connections, [{{"{name}", [{{host, "h"}}, {more}]}}]}}')["upstreams"][name]


def comments(settings: str) -> str:
    lines = (line.partition("# ")[2].strip() for line in convert(settings).splitlines())
    return " ".join(line for line in lines if line)


def mistakes(settings: str) -> list[str]:
    with pytest.raises(LegacyError) as caught:
        convert(settings)
    return [str(problem) for problem in caught.value.problems]


def read(name: str) -> bytes:
    return (HERE / name).read_bytes()


def test_the_verbose_example_is_imported_whole() -> None:
    assert import_legacy(read("verbose.config"), file=FILE) == read("verbose.yaml").decode()


def test_every_property_of_the_verbose_example_has_its_counterpart() -> None:
    imported = yaml.safe_load(import_legacy(read("verbose.config"), file=FILE))
    assert imported["agent"] == {"name": "shop"}
    assert imported["downstream"] == {
        "uri": "amqp://mover%40here:${env:DOWNSTREAM_PASSWORD}@127.0.0.1:5672",
        "management": "http://mover%40here:${env:DOWNSTREAM_PASSWORD}@127.0.0.1:15672",
    }
    assert imported["upstreams"]["near-site"] == {
        "host": "near.example",
        "protocol": "amqps",
        "port": 5671,
        "virtual-host": "/",
        "username": "mover",
        "password": "${env:NEAR_SITE_PASSWORD}",
        "mechanism": "default",
        "prefetch-count": 1000,
        "reconnect-delay": 5,
        "heartbeat": 1,
        "expires": 30000,
        "message-ttl": 10000,
        "ha-policy": "all",
        "ssl-options": {
            "cacertfile": "/etc/tls/ca.pem",
            "certfile": "/etc/tls/cert.pem",
            "keyfile": "/etc/tls/key.pem",
            "verify": "verify_peer",
            "fail_if_no_peer_cert": True,
            "depth": 2,
            "password": "${env:NEAR_SITE_KEY_PASSWORD}",
        },
    }


_EXCHANGES = '{exchanges, [[{exchange, "x"}, {type, "topic"}, {upstream_set, "s"}]]}'
_REST = '{upstream_sets, [{"s", [[{connection, "c"}]]}]}, {connections, [{"c", [{host, "h"}]}]}'


@pytest.mark.parametrize(
    "text",
    [
        f"[{{rabbitmq_federation, [{_EXCHANGES}, {_REST}]}}].",
        f"[{{rabbitmq_federation, [{_EXCHANGES}, {_REST}]}}]",
        f"{{rabbitmq_federation, [{_EXCHANGES}, {_REST}]}}.",
        f"{{rabbitmq_federation, [{_EXCHANGES}, {_REST}]}}",
        f"[{{rabbit, []}}]. [{{rabbitmq_federation, [{_EXCHANGES}, {_REST}]}}].",
        f'["included.config", {{rabbitmq_federation, [{_EXCHANGES}, {_REST}]}}].',
        f"[{{rabbitmq_federation, [{_EXCHANGES.replace('[[', '[').replace(']]', ']')}, {_REST}]}}].",
        f"[{{rabbitmq_federation, [{_EXCHANGES}, {_REST.replace('[[', '[', 1).replace(']]', ']', 1)}]}}].",
        f"[{{rabbitmq_federation, [{_EXCHANGES}, {_REST}]}}].".replace("[{host,", "#{host =>").replace('"h"}]', '"h"}'),
    ],
)
def test_every_shape_of_a_file_says_the_same(text: str) -> None:
    imported = yaml.safe_load(import_legacy(text.encode(), file=FILE))
    assert imported["upstreams"] == {"c": {"host": "h", "reconnect-delay": 1}}
    assert imported["upstream-sets"] == {"s": [{"upstream": "c"}]}
    assert imported["exchanges"] == {"x": {"type": "topic", "upstream-set": "s"}}


def test_nothing_configured_is_still_a_document() -> None:
    assert load("") == {
        "downstream": {"uri": "amqp://guest:guest@127.0.0.1:5672", "management": "http://guest:guest@127.0.0.1:15672"}
    }


@pytest.mark.parametrize(
    "text", ["", "[].", "[{rabbit, [{connections, []}]}].", "federation.", '"rabbitmq_federation"']
)
def test_a_file_without_federation_says_so(text: str) -> None:
    with pytest.raises(
        LegacyError, match=r"^rabbitmq\.config:1:1: there is no \{rabbitmq_federation, \[…\]\} in this file"
    ):
        import_legacy(text.encode(), file=FILE)


def test_all_mistakes_are_told_at_once_and_in_order() -> None:
    settings = """
        {exchanges, [[{exchange, "x"}, {type, "topic"}, {upstream_set, "sights"}],
                     [{virtual_host, "/"}],
                     [{exchange, "y"}, {type, "x-federation"}, {upstream_set, "sites"}]]},
        {upstream_sets, [{"sites", [[{connection, "nowhere"}], [{max_hops, many}]]}, wrong]},
        {connections, [{"c", [{port, 0}, {protocol, "http"}, {heartbeat, "1"}]}]},
        {local_username, 5}
        """
    with pytest.raises(LegacyError) as caught:
        convert(settings)
    lines = settings.splitlines()
    told = []
    for problem in caught.value.problems:
        assert problem.place.line
        assert problem.place.column
        told.append((problem.place.line, lines[problem.place.line - 1][problem.place.column - 1 :], problem.message))
    expected = [
        (2, '"sights"}', "'sights' is not in upstream_sets; did you mean 'sites'?"),
        (3, "[{virtual_host", 'the exchange has no exchange; add {exchange, "…"}'),
        (3, "[{virtual_host", 'the exchange has no type; add {type, "topic"}, or the type the exchange has'),
        (3, "[{virtual_host", 'the exchange has no upstream_set; add {upstream_set, "…"}, a name from upstream_sets'),
        (4, '"x-federation"', "type: x-federation can't be based on itself; write topic, or the type the exchange has"),
        (5, '"nowhere"', "'nowhere' is not in connections; add it there or name another"),
        (5, "[{max_hops", "upstream set 'sites': an upstream names no connection; add {connection, \"…\"}"),
        (5, "many", "max_hops: write a whole number from 1 to 32767"),
        (5, "wrong", 'upstream_sets: write this entry as {"name", […]}'),
        (6, "[{port", "connection 'c' names no host; add {host, \"…\"}"),
        (6, "0}", "port: write a whole number from 1 to 65535"),
        (6, '"http"', "protocol: write one of amqp, amqps"),
        (6, '"1"', "heartbeat: write a whole number from 0 to 65535"),
        (7, "5}", 'local_username: write text, as in "text"'),
    ]
    assert [(line, message) for line, _, message in told] == [(line, message) for line, _, message in expected]
    assert all(pointed.startswith(wanted) for (_, pointed, _), (_, wanted, _) in zip(told, expected, strict=True))


@pytest.mark.parametrize(
    ("settings", "mistake"),
    [
        ("{exchanges, x}", "exchanges: write a list, as in {exchanges, […]}"),
        ("{exchanges, [x]}", "exchange: write a list of properties, as in [{key, value}, …]"),
        ("{connections, [{5, []}]}", 'connections: write text, as in "text"'),
        ('{connections, [{"${env:A}", [{host, "h"}]}]}', "connections: ${env: and ${file: can't be used in a name"),
        ('{connections, [{"", [{host, "h"}]}]}', "connections: write a name of 1 to 255 bytes"),
        ('{connections, [{"c", [{host, ""}]}]}', "host: write a name of 1 to 255 bytes"),
        ('{connections, [{"c", [{host, "h:5672"}]}]}', "host: write the name of a host or an IP address, and the port"),
        (
            '{exchanges, [[{exchange, "amq.topic"}, {type, topic}]]}',
            "exchange: names that begin with amq. are the broker",
        ),
        ('{exchanges, [[{exchange, "e"}, {type, "toppic"}]]}', "type: write one of direct, fanout, topic, headers, or"),
        ('{connections, [{"c", [{host, "h"}, 5]}]}', "connection 'c': write this entry as {key, value}"),
        (
            '{connections, [{"c", [{host, "h"}, {mechanism, cram}]}]}',
            "mechanism: write one of default, EXTERNAL, plain",
        ),
        ('{connections, [{"c", [{host, "h"}, {ssl_options, x}]}]}', "ssl_options: write a list of properties"),
        ('{connections, [{"c", [{host, "h"}, {reconnect_delay, -1}]}]}', "reconnect_delay: write a number of seconds"),
        ('{upstream_sets, [{"s", x}]}', "upstream set 's': write a list of upstreams, as in"),
        ('{upstream_sets, [{"all", []}]}, {connections, [{"c", [{host, "h"}]}]}', "the set 'all' can't be imported"),
    ],
)
def test_a_wrong_value_is_told(settings: str, mistake: str) -> None:
    assert any(mistake in told for told in mistakes(settings))


def test_a_second_federation_part_is_told() -> None:
    with pytest.raises(LegacyError, match=r":2:2: rabbitmq_federation is here for the second time"):
        import_legacy(b"[{rabbitmq_federation, []},\n {rabbitmq_federation, []}].", file=FILE)


def test_what_2x_took_by_itself_is_kept_or_told() -> None:
    settings = f"{_EXCHANGES}, {_REST}"
    told = comments(settings)
    assert load(settings)["upstreams"]["c"]["reconnect-delay"] == 1
    for said in (
        "2.x used 1000 messages",
        "a dead peer went unnoticed",
        "rabbit@HOST",
        "below `vhosts:`",
        "used guest",
    ):
        assert said in told
    assert "Passwords" not in told
    assert "checked no certificate" not in told


def test_tls_without_verification_is_told() -> None:
    silent = '{connections, [{"c", [{host, "h"}, {protocol, amqps}, {ssl_options, [{depth, 1}]}]}]}'
    assert "2.x checked no certificate" in comments(silent)
    assert "2.x checked no certificate" not in comments(silent.replace("{depth, 1}", "{verify, verify_none}"))


@pytest.mark.parametrize(
    ("property_", "key", "value"),
    [
        ("{mechanism, 'EXTERNAL'}", "mechanism", "EXTERNAL"),
        ("{mechanism, plain}", "mechanism", "plain"),
        ('{mechanism, "AMQPLAIN"}', "mechanism", "amqplain"),
        ('{ha_policy, <<"all">>}', "ha-policy", "all"),
        ('{ha_policy, {nodes, ["rabbit@a"]}}', "ha-policy", "nodes"),
        ("{max_hops, 3}", "max-hops", 3),
        ("{reconnect_delay, 0.5}", "reconnect-delay", 0.5),
        ("{port, undefined}", "port", None),
        ("{heartbeat, none}", "heartbeat", None),
        ("{heartbeat, 0}", "heartbeat", 0),
        ("{prefetch_count, none}", "prefetch-count", None),
        ("{expires, none}", "expires", None),
        ("{message_ttl, none}", "message-ttl", None),
        ("{ha_policy, none}", "ha-policy", None),
        ("{virtual_host, [116, 195, 169]}", "virtual-host", "té"),
        ("{virtual_host, <<16#e9>>}", "virtual-host", "é"),
        ('{username, "${env:HOME}"}', "username", "$${env:HOME}"),
        ("{ssl_options, [{depth, 1}]}", "ssl-options", None),
        ("{protocol, amqps}, {ssl_options, []}", "ssl-options", {}),
        ('{protocol, amqps}, {ssl_options, [{keyfile, "k"}]}', "ssl-options", {}),
        ("{virtual_host, <<>>}", "virtual-host", ""),
        ("{protocol, amqps}, {ssl_options, [{verify, 0}]}", "ssl-options", {"verify": "verify_none"}),
    ],
)
def test_values_in_all_their_spellings(property_: str, key: str, value: Any) -> None:
    assert upstream(property_).get(key) == value


def test_what_has_no_counterpart_is_told() -> None:
    told = comments(
        """
        {colour, 1},
        {exchanges, [[{exchange, "x"}, {type, topic}, {upstream_set, "s"}, internal, {shape, round}],
                     [{exchange, "x"}, {type, fanout}, {upstream_set, "s"}]]},
        {upstream_sets, [{"s", [[{connection, "c"}, {expires, 5}]]}, {"s", []}]},
        {connections, [{"c", [{host, "h"}, {host, "i"}, {ssl_options, []}, {ha_policy, {nodes, []}}]},
                       {"d", [{host, "h"}, {protocol, "amqps"},
                              {ssl_options, [{ciphers, ["AES"]}, {password, "secret"}]}]}]}
        """
    )
    for said in (
        "rabbitmq_federation colour (line 2): no counterpart, omitted",
        "shape (line 3): no counterpart, omitted",
        "internal: internal exchanges can't be federated",
        "exchange 'x' (line 4): given before, and 2.x used the first; omitted",
        "expires (line 5): no counterpart, omitted",
        "'s' of upstream_sets (line 5): given before, and 2.x used the first; omitted",
        "host (line 6): given before, and 2.x used the first; omitted",
        "ssl_options (line 6): 2.x used them with protocol amqps only; omitted",
        "ha_policy (line 6): its list of nodes has no counterpart, omitted",
        "ssl_options ciphers (line 8): no counterpart, omitted",
    ):
        assert said in told


@pytest.mark.parametrize("nodes", ['["rabbit@a", <<"rabbit@b">>]', "[rabbit@a, 'rabbit@b']"])
def test_the_nodes_of_an_ha_policy_are_named_in_a_comment(nodes: str) -> None:
    told = comments(f'{{connections, [{{"c", [{{host, "h"}}, {{ha_policy, {{nodes, {nodes}}}}}]}}]}}')
    assert "its list of nodes (rabbit@a, rabbit@b) has no counterpart, omitted" in told


def test_arguments_of_an_exchange() -> None:
    arguments = """[
        {<<"s">>, longstr, <<"${x}">>}, {<<"i">>, signedint, 5}, {<<"b">>, bool, true}, {<<"v">>, void, undefined},
        {<<"t">>, table, [{<<"k">>, double, 1}]}, {<<"a">>, array, [{longstr, <<"e">>}, {long, 7}, 8]},
        {<<"u">>, false}, {"w", "text"}, {f, 1.5}]"""
    imported = load(f"{_EXCHANGES.replace(']]', f', {{arguments, {arguments}}}]]')}, {_REST}")
    assert imported["exchanges"]["x"]["arguments"] == {
        "s": "$${x}",
        "i": 5,
        "b": True,
        "v": None,
        "t": {"k": 1.0},
        "a": ["e", 7, 8],
        "u": False,
        "w": "text",
        "f": 1.5,
    }


@pytest.mark.parametrize(
    "arguments", ["x", "[x]", '[{"k", decimal, {1, 2}}]', '[{"k", bool, 1}]', '[{"k", double, x}]', '[{"k", {a}}]']
)
def test_wrong_arguments_are_told(arguments: str) -> None:
    (mistake,) = mistakes(f"{_EXCHANGES.replace(']]', f', {{arguments, {arguments}}}]]')}, {_REST}")
    assert ": arguments: " in mistake


def test_another_vhost_gets_what_its_exchanges_need() -> None:
    imported = load(
        """
        {exchanges, [[{exchange, "x"}, {virtual_host, "tenant"}, {type, topic}, {upstream_set, "s"}]]},
        {upstream_sets, [{"s", [[{connection, "b"}]]}, {"t", [[{connection, "a"}]]}]},
        {connections, [{"a", [{host, "h"}]}, {"b", [{host, "h"}]}]}
        """
    )
    assert list(imported["upstreams"]) == ["a", "b"]
    assert list(imported["upstream-sets"]) == ["s", "t"]
    assert "exchanges" not in imported
    tenant = imported["vhosts"]["tenant"]
    assert {key: list(section) for key, section in tenant.items()} == {
        "upstreams": ["b"],
        "upstream-sets": ["s"],
        "exchanges": ["x"],
    }


def test_a_set_called_all_that_is_all_needs_no_definition() -> None:
    imported = load(f"{_EXCHANGES}, {_REST}".replace('"s"', '"all"'))
    assert "upstream-sets" not in imported
    assert imported["exchanges"]["x"]["upstream-set"] == "all"


def test_the_brokers_own_defaults_were_the_plugins_too() -> None:
    broker = '{rabbit, [{default_vhost, <<"v">>}, {default_user, <<"u">>}, {default_pass, <<"hidden">>}]}'
    text = import_legacy(f"[{broker}, {{rabbitmq_federation, [{_EXCHANGES}, {_REST}]}}].".encode(), file=FILE)
    imported = yaml.safe_load(text)
    assert list(imported["vhosts"]) == ["v"]
    assert imported["upstreams"]["c"]["username"] == "u"
    assert imported["upstreams"]["c"]["password"] == "${env:C_PASSWORD}"
    assert "hidden" not in text


def test_variables_are_valid_and_each_is_used_once() -> None:
    names = ["a-b", "a_b", "a b", "a b password 2", "1st", "é", "downstream"]
    connections = ", ".join(f'{{"{name}", [{{host, "h"}}, {{password, "p"}}]}}' for name in names)
    passwords = [each["password"] for each in load(f"{{connections, [{connections}]}}")["upstreams"].values()]
    assert passwords == [
        *("${env:A_B_PASSWORD}", "${env:A_B_PASSWORD_2}", "${env:A_B_PASSWORD_3}", "${env:A_B_PASSWORD_2_PASSWORD}"),
        *("${env:UPSTREAM_1ST_PASSWORD}", "${env:UPSTREAM_PASSWORD}", "${env:DOWNSTREAM_PASSWORD_2}"),
    ]


def test_latin1_is_told() -> None:
    text = import_legacy('{rabbitmq_federation, [{local_nodename, "é"}]}'.encode("latin-1"), file=FILE)
    assert "read as Latin-1" in text
    assert yaml.safe_load(text)["agent"] == {"name": "é"}


def test_a_nodename_left_to_the_broker_names_no_agent() -> None:
    assert "agent" not in load("{local_nodename, automatic}")
