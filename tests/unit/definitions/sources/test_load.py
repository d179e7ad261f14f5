"""A whole file: what it becomes, and everything wrong with it at once, in order, with places and suggestions."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent.core.addresses.uri import Mechanism
from agent.core.fields import Field
from agent.core.model import (
    AckMode,
    ApplyTo,
    Binding,
    Choice,
    Federation,
    LinkSettings,
    QueueDestination,
    QueueSource,
    SetMember,
)
from agent.core.settings import AgentSettings, HttpSettings, SourceSettings, StatusExportSettings
from agent.definitions.models.downstream_objects import NO_FEDERATION
from agent.definitions.sources.load import load_configuration, load_http
from agent.errors import ConfigurationError
from tests.unit.definitions.documents import DOWNSTREAM, complaints, load, write

CONTRACT = """\
agent:
  name: dc2-a
  group: dc2
  http: {listen: 127.0.0.1:9419, token: "${file:agent-token}"}
  status-export: {directory: var/status, sample-interval: 10, rotate: 60}
downstream:
  uri: amqp://guest:guest@127.0.0.1:5672
  management: http://guest:guest@127.0.0.1:15672
definitions:
  management: true
  files: [definitions.json]
upstreams:
  origin: {uri: amqp://remote-host.local:5672, max-hops: 1}
upstream-sets:
  both-dcs: [{upstream: origin}, {upstream: other, exchange: elsewhere}]
policies:
  exchange-federation: {pattern: ^federated\\., apply-to: exchanges, priority: 10, definition: {federation-upstream-set: all}}
exchanges:
  my-exchange: {type: topic, durable: true, upstream-set: both-dcs, arguments: {alternate-exchange: my-ae}}
bindings:
  my-exchange: [{key: "orders.#"}, {key: "", arguments: {x-match: all, type: read}}]
shovels:
  drain: {src-uri: "amqp://", src-queue: a, dest-uri: "amqp://b", dest-queue: b}
vhosts:
  tenant: {upstreams: {origin: {uri: amqp://tenant.local}}}
"""  # noqa: E501 — as the documents write it


def test_the_documented_configuration_loads(tmp_path: Path) -> None:
    write(tmp_path, "token\n", "agent-token")
    write(tmp_path, "{}", "definitions.json")
    configuration = load(tmp_path, CONTRACT)
    settings, vhost = configuration.settings, configuration.definitions.of("/")
    assert settings.agent.http.token
    assert settings.agent.http.token.reveal() == "token"
    assert settings.agent.status_export == StatusExportSettings(f"{tmp_path}/var/status", 10, 60)
    assert (settings.agent.name, settings.agent.group, settings.agent.stall_after) == ("dc2-a", "dc2", 30)
    assert settings.sources == SourceSettings(management=True, files=(str(tmp_path / "definitions.json"),))
    assert vhost.upstreams["origin"].settings == LinkSettings(max_hops=1)
    assert str(vhost.upstreams["origin"].place) == f"{tmp_path}/agent.yaml:13:3"
    assert vhost.upstream_sets["both-dcs"].members == (
        SetMember("origin"),
        SetMember("other", LinkSettings(exchange="elsewhere"), frozenset({"exchange"})),
    )
    policy = vhost.policies["exchange-federation"]
    assert (policy.apply_to, policy.priority) == (ApplyTo.EXCHANGES, 10)
    assert policy.federation == Federation(Choice.SET, "all")
    assert vhost.exchanges["my-exchange"].exchange.arguments == (("alternate-exchange", Field("S", "my-ae")),)
    assert vhost.bindings["my-exchange"] == (
        Binding("orders.#"),
        Binding("", (("type", Field("S", "read")), ("x-match", Field("S", "all")))),
    )
    drain = vhost.shovels["drain"]
    assert (drain.source, drain.destination) == (QueueSource("a"), QueueDestination("b"))
    assert configuration.definitions.of("tenant").upstreams["origin"].uris[0].host == "tenant.local"
    assert [warning.message for warning in configuration.warnings] == [
        "this doesn't look like a definitions export; it has none of its lists",
        "upstream 'other' isn't defined in this file; another source has to define it",
    ]


def test_the_least_configuration_has_all_defaults(tmp_path: Path) -> None:
    settings = load(tmp_path, DOWNSTREAM).settings
    assert settings.agent == AgentSettings()
    assert settings.agent.http == HttpSettings()
    assert settings.sources == SourceSettings(management=False)


def test_empty_sections_are_those_whose_entries_are_commented_out(tmp_path: Path) -> None:
    assert complaints(tmp_path, DOWNSTREAM + "upstreams:\nagent:\nvhosts: {a: }\ndefinitions:\n") == []


def test_empty_mappings_are_empty(tmp_path: Path) -> None:
    text = """\
agent: {http: }
upstreams: {a: {host: h, protocol: amqps, ssl-options: }}
exchanges: {e: {type: topic, arguments: }}
bindings: {e: [{arguments: }]}
shovels: {s: {src-uri: amqp://h, src-queue: q, dest-uri: amqp://h, dest-publish-properties: , src-queue-args: }}
"""
    assert complaints(tmp_path, DOWNSTREAM + text) == []


def test_the_downstream_is_judged_with_the_rest_of_its_section(tmp_path: Path) -> None:
    assert complaints(tmp_path, "downstream: {uri: [amqp://, http://h], management: ftp://h, urii: x}") == [
        "1:19: uri: it needs a host",
        "1:29: uri: the scheme must be amqp or amqps",
        "1:52: management: the scheme must be http or https",
        "1:61: unknown key 'urii' in downstream; did you mean 'uri'?",
    ]


def test_everything_is_told_at_once_and_in_order(tmp_path: Path) -> None:
    text = """\
agent: {nmae: a, stall-after: 0, http: {listen: localhost}}
downstream:
  uri: http://h
upstreams:
  origin: {uri: amqp://h, max-hop: 1, trust-user-id: yes, ack-mode: on-confrim}
  origin: {}
  other: {uri: "amqp://a b", prefetch-count: 1.5}
upstream-sets:
  x: [{upstream: orign}, {exchange: e}]
policies:
  a: {pattern: "(", definition: {federation-upstream: othr}}
exchanges:
  e: {type: topics, upstream-set: y}
uptreams: {}
"""
    assert complaints(tmp_path, text) == [
        "1:9: unknown key 'nmae' in agent; did you mean 'name'?",
        "1:31: stall-after: must be more than 0",
        "1:49: http.listen: expected HOST:PORT, such as 127.0.0.1:9419 or [::1]:9419",
        "3:8: uri: the scheme must be amqp or amqps",
        "5:27: unknown key 'max-hop' in an upstream; did you mean 'max-hops'?",
        "5:54: trust-user-id: expected true or false, got text; write true",
        "5:69: ack-mode: must be 'on-confirm', 'on-publish' or 'no-ack'; did you mean 'on-confirm'?",
        "6:3: the key 'origin' is already written in line 5",
        (
            "7:16: uri: the URI contains a blank, a control character or a non-ASCII character; percent-encode special "
            "characters in user, password and path (@ as %40, : as %3A, / as %2F, # as %23)"
        ),
        "7:46: prefetch-count: expected a whole number, got a number with a fraction",
        "9:18: upstream 'orign' isn't defined in vhost '/'; did you mean 'origin'?",
        "9:26: a member of an upstream set needs the key 'upstream'",
        "11:16: pattern: not a regular expression: missing ) at position 1",
        "11:55: upstream 'othr' isn't defined in vhost '/'; did you mean 'other'?",
        "13:13: type: must be one of direct, fanout, topic, headers, or a plugin's type beginning with x-",
        "13:35: upstream set 'y' isn't defined in vhost '/'",
        "14:1: unknown key 'uptreams'; did you mean 'upstreams'?",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "1:1: the file is empty; it needs at least the key 'downstream'"),
        ("# nothing\n", "1:1: the file is empty; it needs at least the key 'downstream'"),
        ("[]", "1:1: expected a mapping of sections, got a list"),
        ("text", "1:1: expected a mapping of sections, got text"),
        ("{}", "1:1: the file needs the key 'downstream'"),
        ("downstream: {}", "1:1: downstream needs the key 'uri'"),
        ("downstream: amqp://h", "1:13: expected a mapping, got text"),
        (DOWNSTREAM + "upstreams: []", "2:12: upstreams: expected a mapping of names, got a list"),
        (DOWNSTREAM + "vhosts: {a: []}", "2:13: expected a mapping, got a list"),
        (
            DOWNSTREAM + "vhosts: {a: {upstream: {}}}",
            "2:14: unknown key 'upstream' in a vhost; did you mean 'upstreams'?",
        ),
        (DOWNSTREAM + "upstreams: {'': {uri: amqp://h}}", "2:13: a name must not be empty"),
        (
            DOWNSTREAM + f"upstreams: {{{'x' * 256}: {{uri: amqp://h}}}}",
            "2:13: a name must not be longer than 255 bytes",
        ),
        ("downstream: {uri: amqp://}", "1:19: uri: it needs a host"),
        (
            DOWNSTREAM + "agent: {http: , status-export: }",
            "2:32: status-export: expected a mapping, got nothing",
        ),
        ("downstream: {uri: amqp://h/v}", "1:19: warning: uri: the path is ignored; the agent serves every vhost"),
        ("downstream: {uri: amqp://h, management: amqp://h}", "1:41: management: the scheme must be http or https"),
        ("downstream: {uri: [amqp://h, 1]}", "1:30: uri: expected text, got a number"),
        (
            DOWNSTREAM + "definitions: {management: true}",
            (
                "2:27: warning: definitions.management does nothing without downstream.management, the address of the "
                "HTTP API"
            ),
        ),
        (DOWNSTREAM + "definitions: {files: [missing.json]}", "2:23: definitions.files: there is no such file"),
        (
            DOWNSTREAM + "agent: {http: {listen: 0.0.0.0:9419}}",
            "2:24: http.listen: others can reach this address; set a token, or allow-anonymous: true",
        ),
        (DOWNSTREAM + "agent: {http: {token: ''}}", "2:23: http.token: the token is empty"),
        (
            DOWNSTREAM + "agent: {http: {token: 12345}}",
            "2:23: http.token: expected text, got a number; put it in quotes",
        ),
        *(
            (
                f"{DOWNSTREAM}agent: {{http: {{public-url: '{url}'}}}}",
                "2:28: http.public-url: expected http://HOST[:PORT][/PATH], without user, query and fragment",
            )
            for url in ("ops.example", "ftp://h", "http://u:p@h", "http://h/?q=1", "http://h/#/links", "http://h/<x>")
        ),
        (DOWNSTREAM + "agent: {status-export: {}}", "2:9: agent.status-export needs the key 'directory'"),
    ],
)
def test_tells_what_is_wrong_with_the_frame(tmp_path: Path, text: str, complaint: str) -> None:
    assert complaints(tmp_path, text) == [complaint]


@pytest.mark.parametrize(
    "http",
    [
        "{listen: '[::1]:9419'}",
        "{listen: localhost:0}",
        "{listen: 127.9.9.9:1}",
        "{listen: 0.0.0.0:1, token: '${env:TOKEN}'}",
        "{listen: '[::]:1', allow-anonymous: true}",
        "{public-url: 'https://[fd00::7]:8443/federation/'}",
        "{public-url: '${env:TOKEN}://h'}",
    ],
)
def test_addresses_that_may_be_listened_on(tmp_path: Path, http: str) -> None:
    assert complaints(tmp_path, DOWNSTREAM + f"agent: {{http: {http}}}", environment={"TOKEN": "http"}) == []


def test_an_ipv6_address_loses_its_brackets(tmp_path: Path) -> None:
    http = load(tmp_path, DOWNSTREAM + "agent: {http: {listen: '[::1]:9419'}}").settings.agent.http
    assert (http.host, http.port) == ("::1", 9419)


def test_the_vhost_slash_may_be_written_in_both_places_but_a_name_only_in_one(tmp_path: Path) -> None:
    text = DOWNSTREAM + "upstreams: {a: {uri: amqp://h}}\nvhosts: {/: {upstreams: {b: {uri: amqp://h}}}}\n"
    assert set(load(tmp_path, text).definitions.of("/").upstreams) == {"a", "b"}
    assert complaints(tmp_path, text.replace("b:", "a:")) == [
        "3:26: 'a' is already in 'upstreams' above, which is vhost '/' too"
    ]


def test_names_are_sought_in_their_own_vhost(tmp_path: Path) -> None:
    text = DOWNSTREAM + "upstreams: {a: {uri: amqp://h}}\nvhosts: {v: {upstream-sets: {s: [{upstream: a}]}}}\n"
    assert complaints(tmp_path, text) == [
        "3:45: upstream 'a' isn't defined in vhost 'v'; there is one in vhost '/': each upstream belongs to one vhost"
    ]


OPEN = "downstream: {uri: amqp://h, management: http://h}\ndefinitions: {management: true}\n"
SET = "upstream-sets: {s: [{upstream: a}]}\n"


@pytest.mark.parametrize(
    ("head", "is_error"),
    [
        (DOWNSTREAM, True),
        ("downstream: {uri: amqp://h, management: http://h}\n", True),
        (DOWNSTREAM + "definitions: {management: true}\n", True),
        (OPEN, False),
        (DOWNSTREAM + "definitions: {files: empty.json}\n", True),
    ],
)
def test_a_name_is_unknown_unless_the_broker_was_named_as_a_source(tmp_path: Path, head: str, is_error: bool) -> None:
    write(tmp_path, '{"parameters": []}', "empty.json")
    found = [line for line in complaints(tmp_path, head + SET) if "upstream 'a'" in line]
    assert ["warning" in line for line in found] == [not is_error]


def test_what_an_export_defines_is_known(tmp_path: Path) -> None:
    parameter = {"vhost": "/", "component": "federation-upstream", "name": "a", "value": {"uri": "amqp://h"}}
    write(tmp_path, json.dumps({"parameters": [parameter]}), "export.json")
    text = DOWNSTREAM + "definitions: {files: export.json}\n" + SET
    configuration = load(tmp_path, text)
    assert not configuration.warnings
    assert set(configuration.definitions.of("/").upstreams) == {"a"}
    assert configuration.files == {str(tmp_path / "agent.yaml"), str(tmp_path / "export.json")}


def test_the_same_name_in_file_and_export_is_an_error_that_names_both(tmp_path: Path) -> None:
    parameter = {"vhost": "/", "component": "federation-upstream", "name": "a", "value": {"uri": "amqp://h"}}
    write(tmp_path, json.dumps({"parameters": [parameter]}), "export.json")
    text = DOWNSTREAM + "definitions: {files: export.json}\nupstreams: {a: {uri: amqp://h}}\n"
    (complaint,) = complaints(tmp_path, text)
    assert complaint == (
        "export.json:1:81: upstream 'a' in vhost '/' is also defined at agent.yaml:3:13; rename or remove one of them"
    )


def test_an_export_that_isnt_there_is_an_error_when_strict_and_else_leaves_names_open(tmp_path: Path) -> None:
    text = DOWNSTREAM + "definitions: {files: export.json}\n" + SET
    assert complaints(tmp_path, text) == [
        "2:22: definitions.files: there is no such file",
        "3:32: warning: upstream 'a' isn't defined in this file; another source has to define it",
    ]
    assert all("warning" in line for line in complaints(tmp_path, text, strict=False))


def test_a_name_that_was_interpolated_is_shown_as_written(tmp_path: Path) -> None:
    text = DOWNSTREAM + "upstream-sets: {s: [{upstream: '${env:SECRET_NAME}'}]}"
    (complaint,) = complaints(tmp_path, text, environment={"SECRET_NAME": "sentinel"})
    assert complaint == "2:32: upstream '${env:SECRET_NAME}' isn't defined in vhost '/'"


def test_files_that_arent_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "locked").write_text("x")
    said = {}
    for path in ("missing", ".", "pipe", "/dev/zero", "agent.yaml/x", "a\0b", "new\nline"):
        write(tmp_path, DOWNSTREAM)
        with pytest.raises(ConfigurationError) as caught:
            load_configuration(os.path.join(tmp_path, path), environment={})  # noqa: PTH118 — keeps "." as it is
        said[path] = str(caught.value).replace(f"{tmp_path}/", "")
    assert said == {
        "missing": "missing:1:1: there is no such file",
        ".": ".:1:1: this is a directory; name a file in it",
        "pipe": "pipe:1:1: this is a pipe or device, not a file",
        "/dev/zero": "/dev/zero:1:1: this is a pipe or device, not a file",
        "agent.yaml/x": "agent.yaml/x:1:1: the file can't be read: Not a directory",
        "a\0b": "a b:1:1: the path contains a character that no path can contain",
        "new\nline": "new line:1:1: there is no such file",
    }


def test_too_many_problems_end_the_judging(tmp_path: Path) -> None:
    text = DOWNSTREAM + "upstreams:\n" + "".join(f"  u{number}: {{}}\n" for number in range(1000))
    found = complaints(tmp_path, text)
    assert len(found) == 101
    assert found[-1].endswith("100 problems so far; fix these and check again")


def test_upstreams_in_parts(tmp_path: Path) -> None:
    text = (
        DOWNSTREAM
        + """\
upstreams:
  a: {host: h, port: 5671, protocol: amqps, virtual-host: /, username: u, password: "${env:P}", mechanism: EXTERNAL,
      heartbeat: none, ssl-options: {cacertfile: ca.pem, verify: verify_none, password: "${env:K}"}, ack-mode: no-ack}
  b: {host: "::1"}
  c: {host: h, mechanism: default, heartbeat: 5}
"""
    )
    configuration = load(tmp_path, text, environment={"P": "p", "K": "k"})
    upstreams = configuration.definitions.of("/").upstreams
    (a,) = upstreams["a"].uris
    assert (a.safe, a.user, a.heartbeat, a.mechanisms) == ("amqps://h:5671/%2F", "u", 0, (Mechanism.EXTERNAL,))
    assert a.password
    assert a.password.reveal() == "p"
    assert a.tls
    assert (a.tls.cacertfile, a.tls.verify, a.tls.password and a.tls.password.reveal()) == ("ca.pem", False, "k")
    assert upstreams["a"].settings == LinkSettings(ack_mode=AckMode.NO_ACK)
    assert upstreams["b"].uris[0].safe == "amqp://[::1]"
    assert (upstreams["c"].uris[0].mechanisms, upstreams["c"].uris[0].heartbeat) == ((), 5)
    assert [warning.message for warning in configuration.warnings] == [
        "verify_none: the server's identity is not checked; set cacertfile instead"
    ]


def test_tls_of_the_downstream(tmp_path: Path) -> None:
    """One authority for all its addresses, but for those that name their own."""
    text = """\
downstream:
  uri: ["amqps://a", "amqps://b?cacertfile=b.pem", "amqp://c"]
  management: https://a
  ssl-options: {cacertfile: ca.pem, password: "${env:K}", certfile: c.pem, keyfile: k.pem}
"""
    downstream = load(tmp_path, text, environment={"K": "k"}).settings.downstream
    assert [each.tls and each.tls.cacertfile for each in downstream.uris] == ["ca.pem", "b.pem", None]
    assert [each.tls and each.tls.cacertfile for each in downstream.management] == ["ca.pem"]
    assert downstream.uris[0].tls and downstream.uris[0].tls.password
    assert downstream.uris[0].tls.password.reveal() == "k"


def test_an_address_of_the_downstream_that_asks_for_verification_is_verified(tmp_path: Path) -> None:
    text = """\
downstream:
  uri: ["amqps://a", "amqps://b?verify=verify_peer"]
  management: ["https://a", "https://b?verify=verify_peer"]
  ssl-options: {verify: verify_none}
"""
    downstream = load(tmp_path, text).settings.downstream
    assert [each.tls and each.tls.verify for each in downstream.uris] == [False, True]
    assert [each.tls and each.tls.verify for each in downstream.management] == [False, True]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("uri: amqps://a, ssl-options: {keyfile: k}", "keyfile is given without certfile"),
        ("uri: amqps://a, ssl-options: {verify: verify_none}", "verify_none: the server's identity is not checked"),
        ("uri: amqp://a, ssl-options: {cacertfile: c}", "ssl-options do nothing: no address is amqps or https"),
        ("uri: 'amqps://a?verify=verify_peer', ssl-options: {cacertfile: c}", "ssl-options do nothing: no address is"),
        ("uri: amqps://a, ssl-options: {cacertfle: c}", "did you mean 'cacertfile'?"),
    ],
)
def test_tls_of_the_downstream_that_is_wrong(tmp_path: Path, options: str, complaint: str) -> None:
    [told] = complaints(tmp_path, f"downstream: {{{options}}}\n")
    assert complaint in told


def test_an_export_that_is_given_as_configuration(tmp_path: Path) -> None:
    [complaint] = complaints(tmp_path, json.dumps({"rabbit_version": "4.1.0", "vhosts": [], "policies": []}))
    assert complaint.startswith("1:1: this is a RabbitMQ definitions export and no configuration")
    assert "list this file there under definitions.files" in complaint


@pytest.mark.parametrize(
    ("given", "written"), [("1h", 3_600_000), ("30 s", 30_000), ("1.5h", 5_400_000), ("2d", 172_800_000)]
)
def test_a_duration_with_a_unit(tmp_path: Path, given: str, written: int) -> None:
    text = f"{DOWNSTREAM}upstreams: {{a: {{uri: 'amqp://h', expires: {given}}}}}\n"
    [complaint] = complaints(tmp_path, text)
    assert f"it is in milliseconds, without a unit: for {given.rstrip('hsd ').strip()}" in complaint
    assert complaint.endswith(f"write {written}")


def test_keys_that_begin_with_x_hold_anchors(tmp_path: Path) -> None:
    text = f"x-common: &common {{max-hops: 3}}\n{DOWNSTREAM}upstreams: {{a: {{<<: *common, uri: 'amqp://h'}}}}\n"
    found = load(tmp_path, text)
    assert found.definitions.of("/").upstreams["a"].settings.max_hops == 3
    assert not found.warnings


def test_a_pattern_that_matches_no_upstream_of_the_file_needs_another_source(tmp_path: Path) -> None:
    """The broker may define more; `plan` and `run` see those, too."""
    policies = "policies: {p: {pattern: x, definition: {federation-upstream-pattern: ^dc}}}"
    downstream = "downstream: {uri: 'amqp://h', management: 'http://h'}\n"
    found = load(tmp_path, f"{downstream}upstreams: {{origin: {{uri: 'amqp://h'}}}}\n{policies}\n")
    [note] = found.warnings
    assert "matches no upstream of this file; another source has to define one" in str(note)
    assert not load(tmp_path, f"{downstream}upstreams: {{dc1: {{uri: 'amqp://h'}}}}\n{policies}\n").warnings


def test_only_names_that_another_source_may_define_are_marked_so(tmp_path: Path) -> None:
    """`check` reads all sources and leaves them out, whatever their messages say."""
    downstream = "downstream: {uri: 'amqp://h', management: 'http://h'}\ndefinitions: {management: true}\n"
    policies = (
        "{p: {pattern: x, definition: {federation-upstream-pattern: ^dc}}, "
        "q: {pattern: x, definition: {federation-upstream: gone}}, "
        "r: {pattern: another source has to define, definition: {max-length: 5}}}"
    )
    sets = "upstream-sets: {another source has to define it: []}\n"
    found = load(tmp_path, f"{downstream}upstreams: {{origin: {{uri: 'amqp://h'}}}}\n{sets}policies: {policies}\n")
    assert {problem.message: problem.may_be_elsewhere for problem in found.warnings} == {
        "the set is empty, so it defines no link": False,
        "matches no upstream of this file; another source has to define one that it matches": True,
        "upstream 'gone' isn't defined in this file; another source has to define it": True,
        NO_FEDERATION: False,
    }


def test_a_policy_without_a_key_of_federation_is_noted(tmp_path: Path) -> None:
    text = f"{DOWNSTREAM}policies: {{p: {{pattern: x, definition: {{max-length: 5}}}}}}\n"
    found = load(tmp_path, text)
    assert found.definitions.of("/").policies["p"].federation is None
    [note] = found.warnings
    assert "no key of federation: what this policy matches isn't federated" in str(note)


def test_what_was_replaced_where_it_alone_is_mounted_is_not_called_read(tmp_path: Path) -> None:
    """Such a path leads to what has no name any more; commands that only look for the agent find it by that even so."""
    (tmp_path / "token").write_text("t0ken")
    with (tmp_path / "agent.yml").open("w+") as file, (tmp_path / "token").open() as token:
        mounted, secret = (f"/proc/self/fd/{each.fileno()}" for each in (file, token))
        file.write(f"{DOWNSTREAM}agent: {{http: {{listen: '127.0.0.1:1', token: '${{file:{secret}}}'}}}}\n")
        file.flush()
        assert load_configuration(mounted, environment={}).source == mounted
        (tmp_path / "token").unlink()
        with pytest.raises(ConfigurationError, match=r"\$\{file:.*\}: this is mounted as a single file"):
            load_configuration(mounted, environment={})
        (tmp_path / "agent.yml").unlink()
        with pytest.raises(ConfigurationError, match=f"{mounted}:1:1: this is mounted as a single file"):
            load_configuration(mounted, environment={})
        settings, unread = load_http(mounted, environment={})
        assert (settings.port, settings.token and settings.token.reveal(), unread) == (1, "t0ken", "")
