"""`set-headers`, `remove-headers` and `rate-limit`, wherever they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core import fields
from agent.core.links.read_limits import RateLimit
from agent.core.model import LinkSettings, ShovelSettings
from agent.core.rules.resolve import finish, resolve
from agent.definitions.sources.keeper import SourceReading
from agent.definitions.sources.parameters import read_global, reading_parameters
from agent.errors import ConfigurationError
from tests.unit.definitions.documents import complaints, load

DOWNSTREAM = "downstream: {uri: amqp://h}\n"
WRITTEN = (
    "set-headers: {site: eu, n: 3, on: true, l: [a, null]}, remove-headers: [secret, debug-*], rate-limit: {bytes: 9}"
)
SET = fields.table_from_json({"l": ["a", None], "n": 3, "on": True, "site": "eu"})
NUMBER = "expected a whole number in a second, from 1 to 1,000,000,000,000"
LIMITS = "expected messages, bytes or both, each a number in a second, or off, got a"
COPIES = "can't be changed by a rule: brokers send copies of a message to the queues in it"
DEATHS = "can't be changed by a rule: brokers write it when they dead-letter a message, and find loops by it"
ROUTE = "links find out by it where a message has been"
SHOVEL = "src-uri: amqp://a, dest-uri: amqp://b, src-queue: q, dest-queue: r"


def rules_of(settings: LinkSettings | ShovelSettings) -> tuple[fields.Table, tuple[str, ...], RateLimit | None]:
    return settings.set_headers, settings.remove_headers, settings.rate_limit


def test_links_and_shovels_have_them(tmp_path: Path) -> None:
    text = f"{DOWNSTREAM}upstreams: {{a: {{uri: amqp://h, {WRITTEN}}}}}\nshovels: {{s: {{{SHOVEL}, {WRITTEN}}}}}"
    found = load(tmp_path, text).definitions.of("/")
    for settings in (found.upstreams["a"].settings, found.shovels["s"].settings):
        assert rules_of(settings) == (SET, ("secret", "debug-*"), RateLimit(bytes=9))


def test_a_member_of_a_set_overrides_them_one_by_one(tmp_path: Path) -> None:
    text = f"""{DOWNSTREAM}
upstreams: {{a: {{uri: amqp://h, {WRITTEN}}}, b: {{uri: amqp://h, {WRITTEN}}}}}
upstream-sets: {{s: [{{upstream: a, set-headers: {{}}, rate-limit: off}}, {{upstream: b, remove-headers: []}}]}}
exchanges: {{x: {{type: topic, upstream-set: s}}}}
"""
    links = {link.upstream: link for link in resolve(load(tmp_path, text).definitions, {}).links}
    assert rules_of(links["a"].settings) == ((), ("secret", "debug-*"), None)
    assert rules_of(links["b"].settings) == (SET, (), RateLimit(bytes=9))


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ("set-headers: {CC: [a]}", f"set-headers: 'CC' {COPIES}"),
        ("set-headers: {x-death: []}", f"set-headers: 'x-death' {DEATHS}"),
        ("set-headers: a", "set-headers: expected a mapping, got text"),
        ("set-headers: {a: .inf}", "set-headers: a number in it is not finite"),
        (f"set-headers: {{a: {'x' * 2050}}}", "set-headers: 2,057 bytes in every message, more than 2,048"),
        ("remove-headers: ['x-*']", f"remove-headers: 'x-*' would change x-received-from, which no rule may: {ROUTE}"),
        ("remove-headers: [x-shovelled]", f"remove-headers: 'x-shovelled' can't be changed by a rule: {ROUTE}"),
        ("remove-headers: ['a*b']", "remove-headers: a * is allowed only at the end of a name"),
        ("remove-headers: a", "remove-headers: expected a list, got text"),
        ("remove-headers: ['']", "remove-headers: a name must not be empty"),
        ("rate-limit: {message: 1}", "rate-limit: unknown key 'message'; did you mean 'messages'?"),
        ("rate-limit: {messages: 0}", f"rate-limit: messages: {NUMBER}"),
        ("rate-limit: {bytes: 10MB}", f"rate-limit: bytes: {NUMBER}"),
        ("rate-limit: 5", f"rate-limit: {LIMITS} number"),
        ("rate-limit: {}", f"rate-limit: {LIMITS} mapping"),
        ("set-header: {}", "unknown key 'set-header' in {noun}; did you mean 'set-headers'?"),
    ],
)
def test_mistakes(tmp_path: Path, keys: str, complaint: str) -> None:
    for noun, text in (
        ("an upstream", f"upstreams: {{a: {{uri: amqp://h, {keys}}}}}"),
        ("a shovel", f"shovels: {{a: {{{SHOVEL}, {keys}}}}}"),
    ):
        [found] = complaints(tmp_path, DOWNSTREAM + text)
        assert found.endswith(": " + complaint.replace("{noun}", noun))


def test_the_global_parameter_has_them(tmp_path: Path) -> None:
    upstream = {"uri": "amqp://h", "rate-limit": {"messages": 5.0}, "set-headers": {"a": 1}, "remove-headers": ["b"]}
    settings = read_global("dc1", {"upstreams": {"a": upstream}}).definitions.of("/").upstreams["a"].settings
    assert rules_of(settings) == ((("a", fields.long(1)),), ("b",), RateLimit(messages=5))
    with pytest.raises(ConfigurationError, match="can't be changed by a rule"):
        read_global("dc1", {"upstreams": {"a": {**upstream, "set-headers": {"BCC": 1}}}})


def test_native_parameters_are_as_strict_as_ever() -> None:
    """Brokers refuse the agent's keys there, and keys that nobody knows; neither is overlooked."""
    value = {"uri": "amqp://h", "set-header": {}}
    parameter = {"component": "federation-upstream", "vhost": "/", "name": "a", "value": value}
    found = finish(reading_parameters("dc1", [parameter], SourceReading()))
    assert ["unknown key 'set-header' in an upstream" in str(each) for each in found.refused] == [True]


def test_messages_between_two_ends_of_amqp10_go_on_as_they_are(tmp_path: Path) -> None:
    ends = ", ".join(f"{end}-protocol: amqp10, {end}-uri: amqp://h, {end}-address: a" for end in ("src", "dest"))
    [found] = complaints(tmp_path, f"{DOWNSTREAM}shovels: {{s: {{{ends}, set-headers: {{a: b}}}}}}")
    assert found.endswith("set-headers needs an end of amqp091: between two of amqp10 messages go on as they are")
