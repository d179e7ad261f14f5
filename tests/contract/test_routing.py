"""Which messages go where."""

from __future__ import annotations

from typing import Any, Final

from agent.amqp.wire import methods
from agent.core import fields
from agent.core.fields import Field
from tests.contract.asking import OK, Asking, Release, with_headers

THREE: Final = "#.a.#.b.#"
MANY_WILDCARDS: Final = {
    "3.10": OK,
    "4.3.5": f"406 PRECONDITION_FAILED - Topic binding key '{THREE}' uses 3 '#' wildcards, at most 2 are allowed",
}
KEYS: Final = ("", "a", "a.b", "a.b.c", "a.c", "a..c")
TAKEN_BY_KEY: Final = {
    "#": KEYS,
    "#.#": KEYS,
    "*": ("a",),
    "a.*": ("a.b", "a.c"),
    "a.#": KEYS[1:],
    "*.b": ("a.b",),
    "#.b": ("a.b",),
    "a.*.c": ("a.b.c", "a..c"),
    "a.#.c": ("a.b.c", "a.c", "a..c"),
    "": ("",),
    "a.b": ("a.b",),
}
HEADERS: Final[dict[str, dict[str, Any]]] = {
    "none": {},
    "k": {"k": "v"},
    "x-k": {"x-k": "v"},
    "both": {"k": "v", "x-k": "v"},
    "another": {"k": "w"},
}
TAKEN_BY_MATCH: Final = {
    "all": ["k", "both"],
    "any": ["k", "both"],
    "all-with-x": ["both"],
    "any-with-x": ["k", "x-k", "both"],
}
EQUAL_NUMBERS: Final = {"3.10": ["l", "s", "I", "d"], "3.13": ["l", "s", "I"]}
"""Tags of a number in a message that equals one of tag `l` in a binding."""


async def test_topic_keys(ask: Asking) -> None:
    for key in TAKEN_BY_KEY:
        await ask.queue(f"topic {key}")
        assert await ask.bind("amq.topic", f"topic {key}", key) == OK
    for key in KEYS:
        assert await ask.publish("amq.topic", key, body=key.encode()) == "ack"
    assert {key: tuple(await ask.bodies(f"topic {key}")) for key in TAKEN_BY_KEY} == TAKEN_BY_KEY


async def test_topic_keys_with_many_wildcards(ask: Asking, release: Release) -> None:
    await ask.exchange("y", "fanout")
    to_y = {"destination": "y", "source": "amq.topic"}
    assert await ask(methods.EXCHANGE_BIND, **to_y, routing_key="#.a.#") == OK
    assert await ask(methods.EXCHANGE_BIND, **to_y, routing_key=THREE) == release.says(MANY_WILDCARDS)


async def test_headers(ask: Asking) -> None:
    arguments = fields.table_from_json({"k": "v", "x-k": "v"})
    for match in TAKEN_BY_MATCH:
        await ask.queue(match)
        assert await ask.bind("amq.headers", match, arguments=(("x-match", fields.text(match)), *arguments)) == OK
    for name, headers in HEADERS.items():
        await ask.publish("amq.headers", "", with_headers(fields.table_from_json(headers)), name.encode())
    assert {match: await ask.bodies(match) for match in TAKEN_BY_MATCH} == TAKEN_BY_MATCH


async def test_headers_without_arguments_take_all_and_unknown_ways_to_match_are_refused(ask: Asking) -> None:
    await ask.queue("everything")
    assert await ask.bind("amq.headers", "everything") == OK
    await ask.publish("amq.headers", "", body=b"anything")
    assert await ask.bodies("everything") == ["anything"]
    assert await ask.bind("amq.headers", "everything", arguments=(("x-match", fields.text("odd")),)) == (
        '406 PRECONDITION_FAILED - Invalid x-match field value <<"odd">>; expected all, any, all-with-x, or any-with-x'
    )


async def test_numbers_in_headers(ask: Asking, release: Release) -> None:
    await ask.queue("numbers")
    await ask.bind("amq.match", "numbers", arguments=(("x-match", fields.text("all")), ("n", fields.long(1))))
    for field in (Field("l", 1), Field("s", 1), Field("I", 1), Field("d", 1.0), Field("S", "1")):
        await ask.publish("amq.match", "", with_headers((("n", field),)), field.tag.encode())
    assert await ask.bodies("numbers") == release.says(EQUAL_NUMBERS)


async def test_through_exchanges_with_the_same_key(ask: Asking) -> None:
    """As an upstream's messages come to a link's queue: exchange, internal exchange, queue."""
    await ask.exchange("outer", "direct")
    await ask.exchange("inner", "fanout", internal=True, auto_delete=True)
    await ask.queue("end")
    await ask.bind("inner", "end")
    await ask(methods.EXCHANGE_BIND, destination="inner", source="outer", routing_key="k")
    assert await ask.publish("outer", "k") == "ack"
    assert await ask.publish("outer", "l") == "returned 312 NO_ROUTE, ack"
    [came] = await ask.all_of("end")
    assert (came.call["exchange"], came.call["routing_key"]) == ("outer", "k")


async def test_alternate_exchanges(ask: Asking, release: Release) -> None:
    """By an argument or a policy; what goes there isn't returned."""
    await ask.exchange("alternate", "fanout")
    await ask.queue("unrouted")
    await ask.bind("alternate", "unrouted")
    await ask.exchange("by argument", "direct", {"alternate-exchange": "alternate"})
    await ask.exchange("to nowhere", "direct", {"alternate-exchange": "gone"})
    definition = {"alternate-exchange": "alternate"}
    release.node.admin.policy(release.vhost, "p", "^by policy$", definition=definition, apply_to="exchanges")
    await ask.exchange("by policy", "direct")
    assert await ask.publish("by argument", "k", body=b"1") == "ack"
    assert await ask.publish("by policy", "k", body=b"2") == "ack"
    assert await ask.publish("to nowhere", "k", body=b"3") == "returned 312 NO_ROUTE, ack"
    assert await ask.bodies("unrouted") == ["1", "2"]
    release.node.admin.delete("policies", release.vhost, "p")
