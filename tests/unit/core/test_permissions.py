"""The list of permissions: the same as in docs/permissions.md, judged as brokers do, and granted by one command."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from agent.core.fields import text
from agent.core.model import (
    AddressDestination,
    AddressSource,
    ExchangeSource,
    Link,
    LinkSettings,
    QueueDestination,
    QueueSource,
    ShovelLink,
)
from agent.core.permissions import (
    GENERATED,
    Grant,
    Need,
    Permission,
    TopicGrant,
    grant_command,
    needs_of,
    patterns_to_add,
)
from agent.core.rules.declarations import TYPE
from agent.core.rules.names import stream_offset
from tests.unit.core.some_links import exchange_link, queue_link, shovel_link

DOCUMENT = Path(__file__).parents[3] / "docs/permissions.md"
ROW = re.compile(r"^\| (\w+) \| (configure|write|read) \| `([^`]+)` \|", re.MULTILINE)
QUARANTINE = "quarantining messages that the destination can't take"  # a section of its own, without a table


def rows(section: str) -> set[tuple[bool, str, str]]:
    text = DOCUMENT.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return {(broker in {"upstream", "source"}, permission, on) for broker, permission, on in ROW.findall(text)}


def shovel() -> ShovelLink:
    link = shovel_link(QueueSource("x"))
    return replace(link, shovel=replace(link.shovel, destination=QueueDestination("x")))


@pytest.mark.parametrize(
    ("section", "link"),
    [("Federated exchanges", exchange_link()), ("Federated queues", queue_link()), ("Shovels", shovel())],
)
def test_the_document_lists_the_same(section: str, link: Link) -> None:
    ends = needs_of(link, source_vhost="/", cluster="dc2", source_asks=True, destination_asks=True)
    needed = {
        (is_source, need.permission.value, _written(need, section))
        for is_source, needs in ((True, ends.source), (False, ends.destination))
        for need in needs
        if need.why != QUARANTINE
    }
    assert needed == rows(section)


def test_the_document_lists_what_probes_need() -> None:
    def needed(settings: LinkSettings) -> set[tuple[bool, str, str]]:
        link = exchange_link(settings=settings)
        ends = needs_of(link, source_vhost="/", cluster="dc2", source_asks=True, destination_asks=True)
        both = ((True, ends.source), (False, ends.destination))
        return {(is_source, need.permission.value, need.on) for is_source, needs in both for need in needs}

    more = needed(LinkSettings(probe=10.0)) - needed(LinkSettings())
    assert {(is_source, permission, on.replace("probes ", "probes …")) for is_source, permission, on in more} | {
        (True, "write", "amq.default")  # the quarantine needs it, too
    } == rows("Probes")


def test_the_document_lists_what_streams_need() -> None:
    link = shovel_link(QueueSource("x", ((TYPE, text("stream")),)))
    ends = needs_of(link, source_vhost="/", cluster="dc2", source_asks=False, destination_asks=False)
    name = stream_offset(link.vhost, link.name, "dc2")
    needed = [each for each in ends.source if each.why not in {QUARANTINE, "consuming"}]
    assert [each.permission.value for each in needed if each.is_required] == ["read"]
    written = {(True, each.permission.value, each.on.replace(name, "federation-agent: offset of …")) for each in needed}
    assert written == rows("Streams")


def _written(need: Need, section: str) -> str:
    if need.on.startswith("federation: "):
        return "federation: X -> …"
    if need.on.startswith("federation-agent: notices when"):
        return "federation-agent: notices when …"
    return need.on.replace("x", "X" if section == "Federated exchanges" else "Q") if need.on == "x" else need.on


def test_a_shovel_from_an_exchange_needs_its_own_queue() -> None:
    link = shovel_link(ExchangeSource("x"))
    ends = needs_of(link, source_vhost="/", cluster="", source_asks=True, destination_asks=True)
    assert {(each.permission, each.on) for each in ends.source if each.why != QUARANTINE} == {
        *((each, "amq.gen-") for each in Permission),
        (Permission.READ, "x"),
    }


CONFIGURE, WRITE, READ = Permission


@pytest.mark.parametrize(
    ("address", "from_", "to"),
    [
        ("/queues/a%2Fb", {(READ, "a/b"), (CONFIGURE, "a/b")}, {(WRITE, "amq.default")}),
        ("/amq/queue/q", {(READ, "q")}, {(WRITE, "amq.default")}),
        ("/queue/q", {(READ, "q"), (CONFIGURE, "q")}, {(WRITE, "amq.default"), (CONFIGURE, "q")}),
        ("/exchanges/x/k", {*((each, "amq.gen-") for each in Permission), (READ, "x")}, {(WRITE, "x")}),
        ("topic://orders", set(), set()),  # of a broker whose permissions nobody knows
    ],
)
def test_what_an_address_needs(
    address: str, from_: set[tuple[Permission, str]], to: set[tuple[Permission, str]]
) -> None:
    link = shovel_link(AddressSource(address))
    link = replace(link, shovel=replace(link.shovel, destination=AddressDestination(address)))
    ends = needs_of(link, source_vhost="/", cluster="", source_asks=True, destination_asks=True)
    found = [{(each.permission, each.on) for each in needs} for needs in (ends.source, ends.destination)]
    assert found == [from_, to]


@pytest.mark.parametrize(
    ("pattern", "on", "is_prefix", "allowed"),
    [
        (".*", "x", False, True),
        ("^x", "x", False, True),
        ("^x$", "x.y", False, False),
        ("", "x", False, False),
        ("^federation: x$", "federation: x", True, False),
        ("^federation: ", "federation: x", True, True),
        ("(", "x", False, None),
    ],
)
def test_a_grant_is_judged_as_brokers_do(pattern: str, on: str, is_prefix: bool, allowed: bool | None) -> None:
    need = Need(Permission.READ, on, "reading", is_prefix=is_prefix)
    assert Grant(read=pattern).allows(need) is allowed


def test_the_command_grants_exactly_what_is_needed() -> None:
    needs = [Need(Permission.READ, "a.b", ""), Need(Permission.READ, "c d", "", is_prefix=True)]
    assert grant_command("v", "u", needs) == r"rabbitmqctl set_permissions -p v u '^$' '^$' '^(a\.b$|c d)'"


def test_the_command_keeps_what_the_user_has() -> None:
    needs = [Need(Permission.WRITE, "x", "")]
    found = grant_command("v", "o'brien", needs, Grant("^mine", "^w", ""))
    assert found == """rabbitmqctl set_permissions -p v 'o'"'"'brien' '^mine' '(^w)|^x$' '^$'"""


def test_topic_permissions() -> None:
    grant = TopicGrant("u", "v", "x y", "^{username}$", "^a")
    assert [grant.allows(Permission.READ, key) for key in ("a.b", "b.#")] == [True, False]
    assert grant.allows(Permission.WRITE, "u")
    assert grant.command_to_read(["b.#", "*"]) == (
        r"rabbitmqctl set_topic_permissions -p v u 'x y' '^{username}$' '(^a)|^(b\.#|\*)$'"
    )


def test_many_names_are_granted_by_their_common_beginning() -> None:
    needs = [Need(Permission.READ, f"federation: x{number} -> dc2", "", is_prefix=True) for number in range(100)]
    assert grant_command("v", "u", needs).endswith("'^federation: '")


def test_what_is_granted_is_enough() -> None:
    links: list[Link] = [exchange_link("a+b (c)"), queue_link(), shovel()]
    for link, asks in product(links, (True, False)):
        ends = needs_of(link, source_vhost="/", cluster="dc2", source_asks=asks, destination_asks=asks)
        for needs in ends.source, ends.destination:
            words = re.findall(r"'([^']*)'|(\S+)", grant_command("v", "u", needs))
            patterns = [quoted or plain for quoted, plain in words][-3:]
            if not any("'" in need.on for need in needs):
                assert all(Grant(*patterns).allows(need) for need in needs)


def test_without_knowing_what_the_user_has_no_line_to_run_is_given() -> None:
    found = patterns_to_add("a b", "u", [Need(Permission.READ, "x.y", "")])
    assert r"read '^x\.y$'" in found  # to be copied as it is
    assert "rabbitmqctl list_permissions -p 'a b'" in found
    assert "rabbitmqctl set_permissions" not in found


@pytest.mark.parametrize("pattern", [r"^amq\.gen-.+", r"^amq\.gen-[A-Za-z0-9_-]{22}$", "^amq.gen.*"])
def test_patterns_that_fit_the_names_that_brokers_generate(pattern: str) -> None:
    assert Grant(pattern).allows(Need(Permission.CONFIGURE, GENERATED, "", is_prefix=True)) is True


def test_probes_need_permissions_at_both_ends() -> None:
    link = exchange_link(settings=LinkSettings(probe=10.0))
    ends = needs_of(link, source_vhost="/", cluster="c", source_asks=False, destination_asks=False)
    needed = {(each.permission, each.on) for each in ends.destination}
    assert (Permission.WRITE, "amq.default") in {(each.permission, each.on) for each in ends.source if each.is_required}
    assert {(each, "federation-agent: probes ") for each in (Permission.CONFIGURE, Permission.READ)} < needed
