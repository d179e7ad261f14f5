"""Upstreams, sets, policies, exchanges, bindings and shovels: RabbitMQ's rules, and words for each breach."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from agent.core.model import AckMode, CleanupMode, QueueType
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
    assert upstream.settings == {
        "prefetch_count": None,
        "reconnect_delay": 1.5,
        "ack_mode": AckMode.ON_PUBLISH,
        "expires": 1000,
        "queue_type": QueueType.QUORUM,
        "resource_cleanup_mode": CleanupMode.NEVER,
        "trust_user_id": True,
        "forward_unrouted": True,
    }


UPSTREAM = "upstreams: {a: {uri: amqp://h}}\n"


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ("upstream-sets: {all: [{upstream: a}]}", "the set 'all' always means every upstream; choose another name"),
        ("upstream-sets: {s: []}", "warning: the set is empty, so it defines no link"),
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
            "upstream set 'nope' isn't defined",
        ),
        (
            "upstream-sets: {nipe: [{upstream: a}]}\nexchanges: {e: {type: topic, arguments: {x-upstream-set: nope}}}",
            "upstream set 'nope' isn't defined; did you mean 'nipe'?",
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
    upstreams = "".join(f"  u{i}: {{uri: amqp://h, forward-unrouted: true}}\n" for i in range(3000))
    exchanges = "".join(f"  e{i}: {{type: direct, upstream-set: all}}\n" for i in range(3000))
    began = time.process_time()
    found = complaints(tmp_path, f"{DOWNSTREAM}upstreams:\n{upstreams}exchanges:\n{exchanges}")
    assert (len(found), time.process_time() - began < 3) == (101, True)


def test_forward_unrouted_is_soon_sought_in_many_vhosts(tmp_path: Path) -> None:
    vhosts = "".join(f"  v{i}: {{}}\n" for i in range(20_000))
    began = time.process_time()
    assert complaints(tmp_path, f"{DOWNSTREAM}vhosts:\n{vhosts}") == []
    assert time.process_time() - began < 4


@pytest.mark.parametrize("type_", ["direct", "fanout", "topic", "headers", "x-delayed-message"])
def test_types_of_exchanges(tmp_path: Path, type_: str) -> None:
    assert told(tmp_path, f"exchanges: {{e: {{type: {type_}}}}}") == []


ENDS = "src-uri: amqp://a, dest-uri: amqp://b"


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
        (
            f"{ENDS}, src-queue: q, src-delete-after: 10, ack-mode: no-ack",
            "a number of messages can't be counted with ack-mode: no-ack",
        ),
        (
            f"{ENDS}, src-queue: q, delete-after: 10, ack-mode: no-ack",
            "a number of messages can't be counted with ack-mode: no-ack",
        ),
        (
            f"{ENDS}, src-queue: q, src-delete-after: always",
            "src-delete-after: expected never, queue-length or a number of messages, got text",
        ),
        (
            f"{ENDS}, src-queue: q, src-protocol: amqp10",
            "src-protocol: only amqp091 is supported; use the broker's own plugin for other protocols",
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
    ("keys", "settings"),
    [
        ("src-queue: q", {"src_queue": "q"}),
        ("src-exchange: x, src-exchange-key: k", {"src_exchange": "x", "src_exchange_key": "k"}),
        ("src-queue: q, dest-exchange-key: k", {"src_queue": "q", "dest_exchange_key": "k"}),
        ("src-queue: q, src-prefetch-count: auto", {"src_queue": "q", "src_prefetch_count": None}),
        ("src-queue: q, prefetch-count: 10", {"src_queue": "q", "src_prefetch_count": 10}),
        ("src-queue: q, prefetch-count: 10, src-prefetch-count: 20", {"src_queue": "q", "src_prefetch_count": 20}),
        ("src-queue: q, delete-after: queue-length", {"src_queue": "q", "src_delete_after": "queue-length"}),
        ("src-queue: q, src-delete-after: 5.0", {"src_queue": "q", "src_delete_after": 5}),
        (
            "src-queue: q, publish-properties: {delivery_mode: 2}",
            {"src_queue": "q", "dest_publish_properties": {"delivery_mode": 2}},
        ),
        (
            "src-queue: q, add-forward-headers: true, add-timestamp-header: true",
            {"src_queue": "q", "dest_add_forward_headers": True, "dest_add_timestamp_header": True},
        ),
        ("src-queue: q, src-protocol: amqp091, dest-protocol: amqp091, internal: true", {"src_queue": "q"}),
    ],
)
def test_shovels_keep_what_was_written_by_the_new_spellings(
    tmp_path: Path, keys: str, settings: dict[str, Any]
) -> None:
    configuration = load(tmp_path, DOWNSTREAM + f"shovels: {{s: {{{ENDS}, {keys}}}}}")
    assert configuration.definitions.of("/").shovels["s"].settings == settings
