"""Upstreams, sets, policies, exchanges, bindings and shovels: RabbitMQ's rules, and words for each breach."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from agent.core import fields
from agent.core.addresses.uri import AmqpUri, Mechanism
from agent.core.model import (
    AckMode,
    AddressDestination,
    AddressSource,
    ChannelUse,
    CleanupMode,
    DeleteAfter,
    ExchangeDestination,
    ExchangeSource,
    LinkSettings,
    PublishProperties,
    QueueDestination,
    QueueSource,
    QueueType,
    Shovel,
    ShovelDestination,
    ShovelSettings,
    ShovelSource,
)
from agent.definitions.sources.written_secrets import WARNING
from tests.unit.definitions.documents import DOWNSTREAM, complaints, load, write


def told(directory: Path, section: str) -> list[str]:
    """The messages without their places, of one section in a good frame."""
    return [line.partition(": ")[2] for line in complaints(directory, DOWNSTREAM + section)]


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ("uri: []", "uri: the list is empty; name at least one"),
        ("uri: 5", "uri: expected text or a list of texts, got a number"),
        ("uri: ", "uri: expected text or a list of texts, got nothing"),
        ("uri: amqp://h, host: h", "'host' is given together with 'uri'; give either the URI or its parts"),
        ("port: 5672", "an upstream needs the key 'uri' (or 'host')"),
        ("host: ''", "host: must not be empty"),
        ("host: 'h:5672/x'", "the host is invalid; give a host name or an IP address, and the port in 'port'"),
        ("host: h, port: 0", "port: must be at least 1"),
        ("host: h, port: 65536", "port: must be at most 65535"),
        ("host: h, protocol: http", "protocol: must be 'amqp' or 'amqps'"),
        (
            "host: h, mechanism: plane",
            "mechanism: must be 'default', 'plain', 'amqplain' or 'external'; did you mean 'plain'?",
        ),
        ("host: h, password: 123", "password: expected text, got a number; put it in quotes"),
        ("host: h, protocol: amqps, ssl-options: {keyfile: k}", "keyfile is given without certfile"),
        (
            "host: h, protocol: amqps, ssl-options: {server_name_indication: ' '}",
            "ssl-options.server_name_indication: server_name_indication is neither a host's name nor 'disable'",
        ),
        (
            'host: h, protocol: amqps, ssl-options: {cacertfile: "a\\0"}',
            "ssl-options.cacertfile: cacertfile contains a NUL character, which is not allowed",
        ),
        ('host: h, password: "a\\0"', "password: password contains a NUL character, which is not allowed"),
        ('host: "h\\0"', "the host is invalid; give a host name or an IP address, and the port in 'port'"),
        ("host: h, ssl-options: {}", "warning: ssl-options do nothing without protocol: amqps"),
        (
            "host: h, protocol: amqps, ssl-options: {verfy: verify_none}",
            "unknown key 'verfy' in ssl-options; did you mean 'verify'?",
        ),
        ("uri: amqp://h, max-hops: 0", "max-hops: must be at least 1"),
        ("uri: amqp://h, max-hops: '1'", "max-hops: expected a whole number, got text"),
        (f"uri: amqp://h, max-hops: {'9' * 5000}", "max-hops: expected a whole number, got a number that is too large"),
        ("uri: amqp://h, max-hops: 99999999999999999999", "max-hops: must be at most 32767"),
        ("uri: amqp://h, prefetch-count: -1", "prefetch-count: must be at least 0"),
        ("uri: amqp://h, prefetch-count: automatic", "prefetch-count: expected a whole number or auto"),
        ("uri: amqp://h, prefetch-count: true", "prefetch-count: expected a whole number, got true or false"),
        ("uri: amqp://h, prefetch-count: ", "prefetch-count: expected a whole number or auto, got nothing"),
        ("uri: amqp://h, reconnect-delay: -0.1", "reconnect-delay: must be at least 0"),
        ("uri: amqp://h, reconnect-delay: .nan", "reconnect-delay: must be a finite number"),
        ("uri: amqp://h, expires: 0", "expires: must be at least 1"),
        ("uri: amqp://h, message-ttl: 4294967296", "message-ttl: must be at most 4294967295"),
        ("uri: amqp://h, exchange: ", "exchange: expected text, got nothing"),
        (f"uri: amqp://h, exchange: {'x' * 256}", "exchange: longer than 255 bytes, the limit of AMQP"),
        ("uri: amqp://h, queue-type: stream", "queue-type: must be 'classic' or 'quorum'"),
        (
            "uri: amqp://h, ha-policy: all",
            "warning: ha-policy: no current broker supports mirrored queues; use queue-type: quorum",
        ),
        (
            "uri: amqp://h, ha-policy: {nodes: [a]}",
            "warning: ha-policy: no current broker supports mirrored queues; use queue-type: quorum",
        ),
        ("uri: amqp://h, ha-policy: 3", "ha-policy: expected text, a list or a mapping, got a number"),
        ("uri: amqp://h/?heartbeat=x", "uri: heartbeat must be a whole number from 0 to 65535"),
        ("uri: amqp://h, management: []", "management: the list is empty; name at least one"),
        ("uri: amqp://h, management: amqp://h", "management: the scheme must be http or https"),
        ("uri: amqp://h, managment: http://h", "unknown key 'managment' in an upstream; did you mean 'management'?"),
        ("uri: amqp://h, management: 'http://u:p@h'", "warning: " + WARNING.format(what="password")),
        (
            "uri: amqp://h, management: 'https://h?verify=verify_none'",
            "warning: management: verify=verify_none: the server's identity is not checked; set cacertfile instead",
        ),
        (
            "uri: 'amqps://h?verify=verify_none'",
            "warning: uri: verify=verify_none: the server's identity is not checked; set cacertfile instead",
        ),
    ],
)
def test_upstreams(tmp_path: Path, keys: str, complaint: str) -> None:
    assert told(tmp_path, f"upstreams: {{a: {{{keys}}}}}") == [complaint]


def test_an_upstream_keeps_only_what_was_written(tmp_path: Path) -> None:
    text = """\
upstreams:
  a: {uri: [amqp://h, "amqp://"], prefetch-count: auto, reconnect-delay: 1.5, ack-mode: on-publish, expires: 1000.0,
      queue-type: quorum, resource-cleanup-mode: never, trust-user-id: true, forward-unrouted: true}
"""
    upstream = load(tmp_path, DOWNSTREAM + text).definitions.of("/").upstreams["a"]
    assert len(upstream.uris) == 2
    assert upstream.settings == LinkSettings(
        prefetch_count=None,
        reconnect_delay=1.5,
        ack_mode=AckMode.ON_PUBLISH,
        expires=1000,
        queue_type=QueueType.QUORUM,
        resource_cleanup_mode=CleanupMode.NEVER,
        trust_user_id=True,
        forward_unrouted=True,
    )


@pytest.mark.parametrize(
    ("keys", "login", "cacertfile"),
    [
        ("uri: 'amqps://u:p@h?cacertfile=/ca', management: 'https://h'", ("u", "p"), "/ca"),
        ("uri: 'amqps://u:p@h?cacertfile=/ca', management: ['https://v@h?cacertfile=/b']", ("v", "guest"), "/b"),
        ("uri: 'amqps://u:p@h?cacertfile=/ca', management: 'http://h'", ("u", "p"), None),
        ("uri: amqp://h, management: 'https://v:w@h?cacertfile=/b'", ("v", "w"), "/b"),
        ("host: h, username: u, password: p, management: http://h", ("u", "p"), None),
    ],
)
def test_the_http_api_of_an_upstream_has_the_login_and_authorities_of_its_uri(
    tmp_path: Path, keys: str, login: tuple[str, str], cacertfile: str | None
) -> None:
    text = f"upstreams: {{a: {{{keys}}}}}"
    [url] = load(tmp_path, DOWNSTREAM + text).definitions.of("/").upstreams["a"].management
    assert (url.user, url.password.reveal()) == login
    assert (url.tls and url.tls.cacertfile) == cacertfile


def test_every_key_of_a_link_reaches_the_core(tmp_path: Path) -> None:
    text = """\
upstreams:
  a: {uri: amqp://h, exchange: x, queue: q, consumer-tag: t, prefetch-count: 7, reconnect-delay: 1.5, max-hops: 3,
      ack-mode: no-ack, trust-user-id: true, expires: 1000, message-ttl: 2000, queue-type: quorum, ha-policy: all,
      bind-nowait: false, channel-use-mode: single, resource-cleanup-mode: never, forward-unrouted: true}
upstream-sets:
  s: [{upstream: a}, {upstream: a, trust-user-id: false, bind-nowait: true}]
"""
    vhost = load(tmp_path, DOWNSTREAM + text).definitions.of("/")
    assert vhost.upstreams["a"].settings == LinkSettings(
        exchange="x",
        queue="q",
        consumer_tag="t",
        prefetch_count=7,
        reconnect_delay=1.5,
        max_hops=3,
        ack_mode=AckMode.NO_ACK,
        trust_user_id=True,
        expires=1000,
        message_ttl=2000,
        queue_type=QueueType.QUORUM,
        ha_policy="all",
        bind_nowait=False,
        channel_use_mode=ChannelUse.SINGLE,
        resource_cleanup_mode=CleanupMode.NEVER,
        forward_unrouted=True,
    )
    plain, changed = vhost.upstream_sets["s"].members
    assert (plain.settings, plain.written) == (LinkSettings(), frozenset())
    assert changed.settings == LinkSettings(trust_user_id=False, bind_nowait=True)
    assert changed.written == {"trust_user_id", "bind_nowait"}


UPSTREAM = "upstreams: {a: {uri: amqp://h}}\n"


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ("upstream-sets: {all: [{upstream: a}]}", "the set 'all' always means every upstream; choose another name"),
        ("upstream-sets: {s: []}", "not run: the set is empty, so it defines no link"),
        ("upstream-sets: {s: {upstream: a}}", "expected a list of members such as {upstream: NAME}, got a mapping"),
        ("upstream-sets: {s: [a]}", "expected a mapping, got text"),
        ("upstream-sets: {s: [{upstream: a, uri: amqp://h}]}", "unknown key 'uri' in a member of an upstream set"),
        ("policies: {p: {definition: {federation-upstream: a}}}", "a policy needs the key 'pattern'"),
        ("policies: {p: {pattern: x}}", "a policy needs the key 'definition'"),
        (
            "policies: {p: {pattern: x, definition: {}}}",
            (
                "a policy's definition takes exactly one of federation-upstream, federation-upstream-set, "
                "federation-upstream-pattern"
            ),
        ),
        (
            "policies: {p: {pattern: x, definition: {federation-upstream: a, federation-upstream-set: all}}}",
            (
                "a policy's definition takes exactly one of federation-upstream, federation-upstream-set, "
                "federation-upstream-pattern"
            ),
        ),
        (
            "policies: {p: {pattern: x, definition: {federation-upstream: a, max-length: 1}}}",
            (
                "unknown key 'max-length' in a policy's definition; the agent's policies only federate: set it with a "
                "policy on the broker as well"
            ),
        ),
        (
            "policies: {p: {pattern: x, definition: {federation-upstream-pattern: '('}}}",
            "definition.federation-upstream-pattern: not a regular expression: missing ) at position 1",
        ),
        (
            f"policies: {{p: {{pattern: {'x' * 1025}, definition: {{federation-upstream: a}}}}}}",
            "pattern: a pattern may not be longer than 1024 bytes",
        ),
        (
            "policies: {p: {pattern: x, apply-to: exchange, definition: {federation-upstream: a}}}",
            (
                "apply-to: must be 'exchanges', 'queues', 'classic_queues', 'quorum_queues' or 'all'; "
                "did you mean 'exchanges'?"
            ),
        ),
        (
            "policies: {p: {pattern: x, apply-to: streams, definition: {federation-upstream: a}}}",
            "apply-to: streams are never federated; write queues or all, or remove the policy",
        ),
        (
            "exchanges: {e: {type: topic, arguments: {upstream-set: nope}}}",
            "upstream set 'nope' isn't defined in vhost '/'",
        ),
        (
            "upstream-sets: {nipe: [{upstream: a}]}\nexchanges: {e: {type: topic, arguments: {x-upstream-set: nope}}}",
            "upstream set 'nope' isn't defined in vhost '/'; did you mean 'nipe'?",
        ),
        (
            (
                "upstream-sets: {s: [{upstream: a}]}\n"
                "exchanges: {e: {type: topic, upstream-set: all, arguments: {x-upstream-set: s}}}"
            ),
            "arguments.x-upstream-set: not the same set as upstream-set names; keep one of them",
        ),
        (
            "exchanges: {e: {type: topic, arguments: {upstream-set: 5}}}",
            "arguments.upstream-set: expected text, got a number",
        ),
        (
            "exchanges: {e: {type: topic, internal: true, arguments: {upstream-set: all}}}",
            "an internal exchange is never federated; drop internal or upstream-set",
        ),
        ("exchanges: {e: {}}", "an exchange needs the key 'type'"),
        (
            "exchanges: {e: {type: x-federation}}",
            "type: write the backing type (for example topic); the agent federates exchanges of any type",
        ),
        (
            "exchanges: {e: {type: topic, internal: true, upstream-set: all}}",
            "an internal exchange is never federated; drop internal or upstream-set",
        ),
        (
            "exchanges: {amq.e: {type: topic}}",
            "names that begin with amq. are the broker's; a policy federates such an exchange",
        ),
        ("exchanges: {e: {type: topic, arguments: [a]}}", "arguments: expected a mapping, got a list"),
        ("exchanges: {e: {type: topic, arguments: {a: .inf}}}", "arguments: a number in it is not finite"),
        (
            "exchanges: {e: {type: topic, arguments: {a: 9223372036854775808}}}",
            "arguments: a number in it does not fit into 64 bits",
        ),
        ("bindings: {e: {key: a}}", "expected a list of bindings such as {key: TEXT}, got a mapping"),
        ("bindings: {e: [{kye: a}]}", "unknown key 'kye' in a binding; did you mean 'key'?"),
        (
            f"bindings: {{e: [{{key: {'x' * 256}}}]}}",
            "key: longer than 255 bytes, the limit of AMQP",
        ),
    ],
)
def test_sets_policies_exchanges_bindings(tmp_path: Path, section: str, complaint: str) -> None:
    assert told(tmp_path, UPSTREAM + section) == [complaint]


def test_an_exchange_may_name_its_set_twice_alike_or_by_an_argument(tmp_path: Path) -> None:
    for keys in ("arguments: {upstream-set: all}", "upstream-set: all, arguments: {x-upstream-set: all}"):
        assert told(tmp_path, f"exchanges: {{e: {{type: topic, {keys}}}}}") == []


FORWARDING = "upstreams: {a: {uri: amqp://h}, f: {uri: amqp://h, forward-unrouted: true}}\n"


@pytest.mark.parametrize(
    ("sets", "exchange", "upstream"),
    [
        ("", "type: direct, upstream-set: all", "f"),
        ("", "type: direct, arguments: {x-upstream-set: all}", "f"),
        ("", "type: x-consistent-hash, upstream-set: all", "f"),
        ("", "type: topic, upstream-set: all", ""),
        ("", "type: direct", ""),
        ("s: [{upstream: a}]", "type: direct, upstream-set: s", ""),
        ("s: [{upstream: a}, {upstream: f}]", "type: direct, upstream-set: s", "f"),
        ("s: [{upstream: a, forward-unrouted: true}]", "type: direct, upstream-set: s", "a"),
        ("s: [{upstream: f, forward-unrouted: false}]", "type: direct, upstream-set: s", ""),
        ("s: [{upstream: f, forward-unrouted: false}, {upstream: f}]", "type: direct, upstream-set: s", ""),
        (
            "s: [{upstream: f, forward-unrouted: false}, {upstream: f, exchange: x}]",
            "type: direct, upstream-set: s",
            "f",
        ),
    ],
)
def test_forward_unrouted_is_refused_where_no_binding_asks_for_everything(
    tmp_path: Path, sets: str, exchange: str, upstream: str
) -> None:
    found = complaints(
        tmp_path, DOWNSTREAM + FORWARDING + f"upstream-sets: {{{sets}}}\nexchanges:\n  e: {{{exchange}}}"
    )
    if not upstream:
        assert found == []
        return
    type_ = "direct" if "direct" in exchange else "x-consistent-hash"
    assert found == [
        (
            f"5:{exchange.rindex(': ') + 9}: upstream '{upstream}' has forward-unrouted, which exchange 'e' of type "
            f"'{type_}' doesn't support: it has no binding that matches all messages; drop the key or use one of "
            "topic, fanout, headers"
        )
    ]


def test_forward_unrouted_of_an_export_counts_and_is_told_with_everything_else(tmp_path: Path) -> None:
    value = {"uri": "amqp://h", "forward-unrouted": True}
    parameters = [
        {"vhost": "/", "component": "federation-upstream", "name": "far", "value": value},
        {"vhost": "/", "component": "federation-upstream-set", "name": "s", "value": [{"upstream": "far"}]},
    ]
    write(tmp_path, json.dumps({"parameters": parameters}), "export.json")
    text = "definitions: {files: export.json}\nexchanges: {e: {type: direct, upstream-set: s, durabel: true}}\n"
    first, second = complaints(tmp_path, DOWNSTREAM + text)
    assert first.startswith("3:45: upstream 'far' has forward-unrouted")
    assert second.startswith("3:48: unknown key 'durabel'")


def test_forward_unrouted_is_one_problem_for_each_exchange_and_soon_found(tmp_path: Path) -> None:
    upstreams = "".join(f"  u{i}: {{uri: amqp://h, forward-unrouted: true}}\n" for i in range(2000))
    exchanges = "".join(f"  e{i}: {{type: direct, upstream-set: all}}\n" for i in range(2000))
    began = time.process_time()
    found = complaints(tmp_path, f"{DOWNSTREAM}upstreams:\n{upstreams}exchanges:\n{exchanges}")
    assert (len(found), time.process_time() - began < 3) == (101, True)


@pytest.mark.parametrize("count", [3_000, pytest.param(20_000, marks=pytest.mark.thorough)])
def test_forward_unrouted_is_soon_sought_in_many_vhosts(tmp_path: Path, count: int) -> None:
    vhosts = "".join(f"  v{i}: {{}}\n" for i in range(count))
    began = time.process_time()
    assert complaints(tmp_path, f"{DOWNSTREAM}vhosts:\n{vhosts}") == []
    assert time.process_time() - began < 1 + count / 5_000


@pytest.mark.parametrize("type_", ["direct", "fanout", "topic", "headers", "x-delayed-message"])
def test_types_of_exchanges(tmp_path: Path, type_: str) -> None:
    assert told(tmp_path, f"exchanges: {{e: {{type: {type_}}}}}") == []


ENDS = "src-uri: amqp://a, dest-uri: amqp://b"
ARGUMENTS = (("a", fields.text("b")),)
UNREMEMBERED = (
    "warning: the place in a stream that is read by amqp10 isn't remembered: with each connection it is copied again "
    "from x-stream-offset on; read it by amqp091"
)
BECOMES_ON_PUBLISH = (
    "warning: no-ack becomes on-publish with src-protocol: local, as the queue may be a stream; write on-publish, or, "
    "if it is no stream, src-protocol: amqp091"
)
UNKNOWN_LAG = (
    "warning: lag-critical does nothing at this address: how much waits is known only for /queues/NAME of RabbitMQ 4; "
    "leave it out"
)
NEVER_DECLARED = "does nothing at this address: the agent declares /queues/NAME of RabbitMQ 4 only; leave it out"
COUNTED = "messages of a stream can't be counted, as it takes none back: use src-delete-after-duration"
NO_OFFSET = (
    "x-stream-offset: expected first, last, next, an offset, a time such as 2026-11-26T08:00:00Z, or how long ago, "
    "such as 12h"
)


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        (f"{ENDS}", "a shovel needs either src-queue or src-exchange, and not both"),
        (f"{ENDS}, src-queue: q, src-exchange: x", "a shovel needs either src-queue or src-exchange, and not both"),
        ("src-uri: amqp://a, src-queue: q", "a shovel needs the key 'dest-uri'"),
        (f"{ENDS}, src-queue: q, dest-queue: q, dest-exchange: x", "dest-queue and dest-exchange exclude each other"),
        (f"{ENDS}, src-queue: q, src-exchange-key: k", "src-exchange-key does nothing without src-exchange"),
        (
            f"{ENDS}, src-queue: q, dest-queue: q, dest-exchange-key: k",
            "dest-exchange-key does nothing with dest-queue",
        ),
        (f"{ENDS}, src-queue: ''", "src-queue: must not be empty"),
        (f"{ENDS}, src-queue: q, dest-queue: ''", "dest-queue: must not be empty"),
        (
            f"{ENDS}, src-queue: q, src-delete-after: 10.0, ack-mode: no-ack",
            "a number of messages can't be counted with ack-mode: no-ack",
        ),
        (
            f"{ENDS}, src-queue: q, delete-after: 10, ack-mode: no-ack",
            "a number of messages can't be counted with ack-mode: no-ack",
        ),
        (
            f"{ENDS}, src-queue: q, src-consumer-args: {{x-stream-offset: 1}}, ack-mode: no-ack",
            "a stream is read with acknowledgements: use on-confirm or on-publish",
        ),
        (
            f"{ENDS}, src-queue: q, src-queue-args: {{x-queue-type: stream}}, src-delete-after: queue-length",
            COUNTED,
        ),
        (
            f"{ENDS}, src-queue: q, src-consumer-args: {{x-stream-offset: first}}, delete-after: 5",
            COUNTED,
        ),
        (
            f"{ENDS}, src-queue: q, src-consumer-args: {{x-stream-offset: first}}, lag-critical: 5m",
            "warning: lag-critical does nothing for a stream: how much waits in one isn't known",
        ),
        (
            f"{ENDS}, dest-queue: d, src-protocol: amqp10, src-address: a, src-consumer-args: {{x-stream-offset: 1}}",
            UNREMEMBERED,
        ),
        (
            f"{ENDS}, dest-queue: d, src-protocol: amqp10, src-address: a, quarantine-after: 5m",
            "warning: quarantine-after does nothing for a source of amqp10: no quarantine is beside it",
        ),
        (f"{ENDS}, src-queue: q, src-protocol: local, ack-mode: no-ack", BECOMES_ON_PUBLISH),
        *(
            (f"{ENDS}, dest-queue: d, src-protocol: amqp10, src-address: {address}, lag-critical: 5m", UNKNOWN_LAG)
            for address in ("a", "topic://a", "/amq/queue/a", "/exchanges/a")
        ),
        *(
            (
                f"{ENDS}, dest-queue: d, src-protocol: amqp10, src-address: {address}, src-predeclared: true",
                f"warning: src-predeclared {NEVER_DECLARED}",
            )
            for address in ("a", "topic://a", "/queue/a", "/amq/queue/a", "/exchanges/a")
        ),
        (
            f"{ENDS}, src-queue: q, dest-protocol: amqp10, dest-address: a, dest-predeclared: true",
            f"warning: dest-predeclared {NEVER_DECLARED}",
        ),
        (
            f"{ENDS}, src-exchange: x, src-consumer-args: {{x-stream-offset: first}}",
            "x-stream-offset needs src-queue, a stream",
        ),
        *(
            (
                f"{ENDS}, src-queue: q, src-consumer-args: {{x-stream-offset: {offset}}}",
                NO_OFFSET,
            )
            for offset in ("oldest", "-1", "1.5", "true", "2026-11-26", "2026-13-26T08:00:00Z", "1969-01-01T00:00:00Z")
        ),
        (
            f"{ENDS}, src-queue: q, src-delete-after: always",
            "src-delete-after: expected never, queue-length or a number of messages, got text",
        ),
        (f"{ENDS}, dest-queue: d, src-protocol: amqp10", "src-protocol: amqp10 needs src-address"),
        (f"{ENDS}, dest-queue: d, src-protocol: amqp10, src-address: ''", "src-protocol: amqp10 needs src-address"),
        (f"{ENDS}, src-queue: q, dest-protocol: amqp10", "dest-protocol: amqp10 needs dest-address"),
        (f"{ENDS}, dest-queue: d, src-address: a", "src-address needs src-protocol: amqp10"),
        (f"{ENDS}, src-queue: q, dest-address: a", "dest-address needs dest-protocol: amqp10"),
        (
            f"{ENDS}, dest-queue: d, src-queue: q, src-protocol: amqp10",
            "src-queue is a key of amqp091; with src-protocol: amqp10 write src-address",
        ),
        (
            f"{ENDS}, src-queue: q, dest-protocol: amqp10, dest-address: a, publish-properties: {{type: t}}",
            "publish-properties is a key of amqp091; with dest-protocol: amqp10 write dest-address",
        ),
        (
            f"{ENDS}, dest-queue: d, src-protocol: amqp10, src-address: a, src-delete-after: queue-length",
            "queue-length is for amqp091; with amqp10 write a number of messages, or never",
        ),
        (
            f"{ENDS}, dest-queue: d, src-protocol: amqp10, src-address: a, src-delete-after: 1, ack-mode: no-ack",
            "a number of messages can't be counted with ack-mode: no-ack",
        ),
        (
            f"{ENDS}, src-queue: q, src-protocol: amqp1.0",
            "src-protocol: must be 'amqp091', 'amqp10' or 'local'; did you mean 'amqp10'?",
        ),
        (
            f"{ENDS}, dest-queue: d, src-protocol: amqp10, src-address: a, src-adress: b",
            "unknown key 'src-adress' in a shovel; did you mean 'src-address'?",
        ),
        (
            f"{ENDS}, src-queue: q, dest-protocol: amqp10, dest-address: a, dest-properties: {{subject: s}}",
            "warning: dest-properties is ignored: a message that goes on by AMQP 1.0 must not change",
        ),
        (
            f"{ENDS}, src-queue: q, dest-properties: {{subject: s}}",
            "dest-properties needs dest-protocol: amqp10",
        ),
        (
            f"{ENDS}, src-queue: q, dest-publish-properties: {{delivery-mode: 2}}",
            "unknown key 'delivery-mode' in dest-publish-properties; did you mean 'delivery_mode'?",
        ),
        (
            f"{ENDS}, src-queue: q, dest-publish-properties: {{delivery_mode: 3}}",
            "dest-publish-properties.delivery_mode: must be at most 2",
        ),
        (f"{ENDS}, src-queue: q, src-queue-args: 1", "src-queue-args: expected a mapping, got a number"),
        (
            "src-uri: amqp://a/, src-queue: q, dest-uri: amqp://b",
            (
                "warning: src-uri: the URI's bare trailing '/' means the vhost named '' to RabbitMQ; write /%2f for "
                "the vhost '/'"
            ),
        ),
    ],
)
def test_shovels(tmp_path: Path, keys: str, complaint: str) -> None:
    assert told(tmp_path, f"shovels: {{s: {{{keys}}}}}") == [complaint]


@pytest.mark.parametrize(
    "keys",
    [
        "src-address: /queues/a, lag-critical: 5m, src-predeclared: true, dest-address: /exchanges/x/k",
        "src-address: /amq/queue/a, dest-address: /queues/b, dest-predeclared: true",
        "src-address: a, lag-critical: off, src-predeclared: false, dest-address: b, dest-predeclared: false",
    ],
)
def test_what_counts_at_an_address_or_is_the_default_is_not_warned_of(tmp_path: Path, keys: str) -> None:
    protocols = "src-protocol: amqp10, dest-protocol: amqp10"
    assert told(tmp_path, f"shovels: {{s: {{{ENDS}, {protocols}, {keys}}}}}") == []


def test_of_an_address_that_is_not_known_here_nothing_is_warned(tmp_path: Path) -> None:
    end = "src-protocol: amqp10, src-address: '${env:NOT_HERE}', src-predeclared: true, lag-critical: 5m"
    section = f"shovels: {{s: {{{ENDS}, {end}, dest-queue: d}}}}"
    assert not any("does nothing" in line for line in told(tmp_path, section))


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ("first", fields.text("first")),
        ("12h", fields.text("12h")),
        ("0", fields.long(0)),
        ("2026-11-26T08:00:00Z", fields.Field("T", 1_795_680_000)),
        ("2026-11-26 10:00:00.5+02:00", fields.Field("T", 1_795_680_000)),
    ],
)
def test_where_a_shovel_begins_in_a_stream(tmp_path: Path, offset: str, expected: fields.Field) -> None:
    found = shovel(tmp_path, f"src-queue: q, src-consumer-args: {{x-stream-offset: {offset}, a: b}}")
    assert found.reads_stream
    assert dict(found.settings.consumer_arguments) == {"a": fields.text("b"), "x-stream-offset": expected}


def shovel(directory: Path, keys: str) -> Shovel:
    return load(directory, DOWNSTREAM + f"shovels: {{s: {{{ENDS}, {keys}}}}}").definitions.of("/").shovels["s"]


@pytest.mark.parametrize(
    ("keys", "source", "destination"),
    [
        ("src-queue: q", QueueSource("q"), ExchangeDestination()),
        ("src-queue: q, src-predeclared: true", QueueSource("q", is_predeclared=True), ExchangeDestination()),
        ("src-queue: q, src-queue-args: {a: b}", QueueSource("q", ARGUMENTS), ExchangeDestination()),
        ("src-exchange: x", ExchangeSource("x"), ExchangeDestination()),
        ("src-exchange: x, src-exchange-key: k", ExchangeSource("x", "k"), ExchangeDestination()),
        ("src-exchange: x, src-predeclared: true", ExchangeSource("x"), ExchangeDestination()),
        ("src-exchange: '', dest-exchange: y", ExchangeSource(""), ExchangeDestination("y")),
        ("src-queue: q, dest-exchange-key: k", QueueSource("q"), ExchangeDestination(None, "k")),
        ("src-queue: q, dest-exchange: '', dest-exchange-key: ''", QueueSource("q"), ExchangeDestination("", "")),
        ("src-queue: q, dest-queue: r", QueueSource("q"), QueueDestination("r")),
        (
            "src-queue: q, dest-queue: r, dest-queue-args: {a: b}, dest-predeclared: true",
            QueueSource("q"),
            QueueDestination("r", ARGUMENTS, is_predeclared=True),
        ),
        (
            "src-protocol: amqp10, src-address: /queues/q, dest-queue: d",
            AddressSource("/queues/q"),
            QueueDestination("d"),
        ),
        (
            "src-queue: q, dest-protocol: amqp10, dest-address: /exchanges/x/k",
            QueueSource("q"),
            AddressDestination("/exchanges/x/k"),
        ),
        (
            "src-protocol: amqp10, src-address: a, src-predeclared: true, dest-protocol: amqp10, dest-address: b",
            AddressSource("a", is_predeclared=True),
            AddressDestination("b"),
        ),
        (
            "src-protocol: local, src-queue: q, dest-protocol: local, dest-exchange: x",
            QueueSource("q"),
            ExchangeDestination("x"),
        ),
    ],
)
def test_the_ends_of_shovels(
    tmp_path: Path,
    keys: str,
    source: ShovelSource,
    destination: ShovelDestination,
) -> None:
    found = shovel(tmp_path, keys)
    assert (found.source, found.destination, found.settings) == (source, destination, ShovelSettings())


@pytest.mark.parametrize(
    ("keys", "settings"),
    [
        ("src-prefetch-count: auto", ShovelSettings()),
        ("prefetch-count: 10", ShovelSettings(prefetch_count=10)),
        ("prefetch-count: 10, src-prefetch-count: 20", ShovelSettings(prefetch_count=20)),
        ("prefetch-count: 10, src-prefetch-count: auto", ShovelSettings()),
        ("src-delete-after: never", ShovelSettings(delete_after=DeleteAfter.NEVER)),
        ("delete-after: queue-length", ShovelSettings(delete_after=DeleteAfter.QUEUE_LENGTH)),
        ("src-delete-after: 5.0", ShovelSettings(delete_after=5)),
        ("src-delete-after: 0, delete-after: 7", ShovelSettings(delete_after=0)),
        (
            "publish-properties: {delivery_mode: 2}",
            ShovelSettings(publish_properties=PublishProperties(delivery_mode=2)),
        ),
        (
            "publish-properties: {delivery_mode: 2}, dest-publish-properties: ",
            ShovelSettings(),
        ),
        (
            "add-forward-headers: true, add-timestamp-header: true",
            ShovelSettings(add_forward_headers=True, add_timestamp_header=True),
        ),
        ("add-forward-headers: true, dest-add-forward-headers: false", ShovelSettings()),
        ("src-protocol: amqp091, dest-protocol: amqp091, internal: true", ShovelSettings()),
        (
            (
                "src-consumer-args: {a: b}, src-consumer-name: t, src-prefetch-count: 3, src-delete-after: 9, "
                "src-delete-after-duration: 60, dest-add-forward-headers: true, dest-add-timestamp-header: true, "
                "ack-mode: on-publish, reconnect-delay: 0.5"
            ),
            ShovelSettings(
                consumer_arguments=ARGUMENTS,
                consumer_tag="t",
                prefetch_count=3,
                delete_after=9,
                delete_after_duration=60,
                add_forward_headers=True,
                add_timestamp_header=True,
                ack_mode=AckMode.ON_PUBLISH,
                reconnect_delay=0.5,
            ),
        ),
    ],
)
def test_the_settings_of_shovels(tmp_path: Path, keys: str, settings: ShovelSettings) -> None:
    assert shovel(tmp_path, f"src-queue: q, {keys}").settings == settings


def test_the_settings_of_a_shovel_between_addresses(tmp_path: Path) -> None:
    ends = "src-protocol: amqp10, src-address: a, dest-protocol: amqp10, dest-address: b"
    keys = "src-consumer-args: {a: b}, src-consumer-name: t, src-prefetch-count: 3, src-delete-after: 9"
    more = "dest-add-forward-headers: true, dest-add-timestamp-header: true, ack-mode: on-publish, reconnect-delay: 1"
    assert shovel(tmp_path, f"{ends}, {keys}, {more}").settings == ShovelSettings(
        consumer_arguments=ARGUMENTS,
        consumer_tag="t",
        prefetch_count=3,
        delete_after=9,
        add_forward_headers=True,
        add_timestamp_header=True,
        ack_mode=AckMode.ON_PUBLISH,
        reconnect_delay=1.0,
    )


@pytest.mark.parametrize(
    ("protocol", "written", "reached"),
    [
        ("local", "amqp://user:word@elsewhere:1/v?heartbeat=3", AmqpUri(path="/v")),
        ("local", "amqp://", AmqpUri()),
        ("amqp091", "amqp://h/", AmqpUri(host="h", path="/")),
        ("amqp10", "amqp://h/", AmqpUri(host="h")),  # the broker's default vhost
        ("amqp10", "amqp://h/v", AmqpUri(host="h", path="/v")),
        (
            "amqp10",
            "amqp://h?hostname=vhost:a%2Fb&sasl=external",
            AmqpUri(host="h", path="/a%2Fb", hostname="vhost:a/b", mechanisms=(Mechanism.EXTERNAL,)),
        ),
    ],
)
def test_where_a_shovels_end_is(tmp_path: Path, protocol: str, written: str, reached: AmqpUri) -> None:
    place = "src-address: a, dest-queue: d" if protocol == "amqp10" else "src-queue: q"
    section = f"shovels: {{s: {{src-protocol: {protocol}, src-uri: '{written}', {place}, dest-uri: 'amqp://'}}}}"
    assert load(tmp_path, DOWNSTREAM + section).definitions.of("/").shovels["s"].source_uris == (reached,)


def test_a_local_shovel_is_told_nothing_of_the_host_that_it_ignores(tmp_path: Path) -> None:
    uri = "amqp://elsewhere/?verify=verify_none"
    assert (
        told(tmp_path, f"shovels: {{s: {{src-protocol: local, src-uri: '{uri}', src-queue: q, dest-uri: 'amqp://'}}}}")
        == []
    )


def test_a_local_shovel_from_a_stream_may_have_no_ack_as_the_plugins(tmp_path: Path) -> None:
    stream = "src-queue: q, src-consumer-args: {x-stream-offset: first}, ack-mode: no-ack"
    ends = "src-uri: 'amqp://', dest-uri: 'amqp://'"
    assert told(tmp_path, f"shovels: {{s: {{{ends}, src-protocol: local, {stream}}}}}") == [BECOMES_ON_PUBLISH]
    assert len(told(tmp_path, f"shovels: {{s: {{{ends}, dest-protocol: local, {stream}}}}}")) == 1


def test_the_properties_that_a_shovel_gives_messages(tmp_path: Path) -> None:
    texts = ("content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type",
             "user_id", "app_id", "cluster_id")  # fmt: skip
    keys = ", ".join([*(f"{name}: {name}" for name in texts), "delivery_mode: 2, priority: 9, timestamp: 5"])
    found = shovel(tmp_path, f"src-queue: q, dest-publish-properties: {{{keys}}}").settings.publish_properties
    assert asdict(found) == {**{name: name for name in texts}, "delivery_mode": 2, "priority": 9, "timestamp": 5}
