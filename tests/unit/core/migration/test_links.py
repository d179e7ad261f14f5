"""Which queues move, by what, and the definitions that follow."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.addresses.uri import parse
from agent.core.migration.links import QueueMoves, consumer_tag, definitions_of, group_of, moves_of
from agent.core.migration.objects import ClusterObjects, ObjectKey, queue_key
from agent.core.migration.selection import MovedBy, choose
from agent.core.model import Queue, QueueLink, ShovelLink, VhostState
from agent.core.rules.resolve import resolve
from agent.errors import Place
from tests.unit.core.migration.clusters import ALL, choice, cluster, queue, selecting

URIS: Final = (parse("amqp://u:p@origin/other?heartbeat=5"),)
NAMES: Final = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60
).filter(lambda name: not name.startswith(("amq.", "federation")))


def moves(source: ClusterObjects, target: ClusterObjects, *, back: bool = False) -> QueueMoves:
    return moves_of(choose(source, ALL), replace(source, cluster="a"), replace(target, cluster="b"), back=back)


@given(
    st.dictionaries(
        NAMES | st.sampled_from(["a|b", "a", "b", "a\n", "${env:A}", "x" * 255]), st.booleans(), max_size=20
    )
)
def test_each_queue_has_one_link_and_no_other_has_any(by_link: dict[str, bool]) -> None:
    queues = {queue_key("v/w", name): MovedBy.QUEUE_LINK if it else MovedBy.SHOVEL for name, it in by_link.items()}
    definitions = definitions_of(QueueMoves(queues, (), {}), URIS, "b", Place("here"))
    others = {"another", *(f"{name}x" for name in by_link), *(f"x{name}" for name in by_link)} - by_link.keys()
    there = {name: Queue(name) for name in {*by_link, *others}}
    links = resolve(definitions, {"v/w": VhostState(queues=there)}).links
    found = [link.name if isinstance(link, QueueLink) else link.shovel.source.keys["src-queue"] for link in links]  # type: ignore[union-attr]
    assert sorted(found) == sorted(by_link)
    for link in links:
        assert {uri.vhost("") for uri in link.uris} == {"v/w"}
        if isinstance(link, ShovelLink):
            assert not by_link[link.shovel.source.keys["src-queue"]]
            assert set(link.shovel.destination.keys.values()) == set(link.shovel.source.keys.values())


def key(name: str) -> ObjectKey:
    return queue_key("v", name)


def test_what_moves_and_what_is_left_with_the_reasons() -> None:
    source = cluster(
        queues=[
            queue("a"),
            queue("stream", x_queue_type="stream"),
            {**queue("passes"), "exclusive": True},
            {**queue("auto"), "auto_delete": True},
            queue("amq.gen-1"),
            queue("federation-agent: quarantine"),
            {"name": "unread"},
            queue("missing"),
        ]
    )
    target = cluster(queues=[queue("a"), queue("auto"), queue("stream"), queue("unread"), queue("only here")])
    found = moves(source, target)
    assert (dict(found.queues), found.missing) == ({key("a"): MovedBy.SHOVEL}, (key("missing"),))
    left = {each.name: reason for each, reason in found.left.items()}
    assert left.keys() == {"stream", "passes", "auto", "amq.gen-1", "federation-agent: quarantine", "unread"}
    assert left["unread"].startswith("in cluster 'a' it is shown without its arguments")


def test_what_goes_back() -> None:
    source = cluster(queues=[queue("a"), queue("only here"), {**queue("auto here"), "auto_delete": True}])
    target = cluster(queues=[queue("a"), queue("theirs"), queue("auto here")])
    found = moves(source, target, back=True)
    assert set(found.queues) == {key("a"), key("auto here")}
    assert (found.missing, found.left) == ((), {key("only here"): "cluster 'b' hasn't got it: nothing comes back"})


@pytest.mark.parametrize("back", [False, True])
def test_a_stream_or_an_exclusive_queue_at_either_end_is_left(back: bool) -> None:
    plain = cluster(queues=[queue("s"), queue("e")])
    other = cluster(queues=[queue("s", x_queue_type="stream"), {**queue("e"), "exclusive": True}])
    assert moves(plain, other, back=back).queues == {}


def test_how_it_moves_is_the_files() -> None:
    source = cluster(queues=[queue("a"), queue("b")])
    chosen = choose(source, selecting(choice("^a$", MovedBy.QUEUE_LINK), choice("^b$")))
    found = moves_of(chosen, source, source, back=False)
    assert found.queues == {key("a"): MovedBy.QUEUE_LINK, key("b"): MovedBy.SHOVEL}


def test_names_are_within_their_bounds() -> None:
    for name in (consumer_tag("ö" * 200), group_of("ö" * 200, ["v"])):
        assert 250 <= len(name.encode()) <= 255
    queues = {queue_key("v", name): MovedBy.SHOVEL for name in ("x" * 255, "ö" * 127, "${file:a}")}
    definitions = definitions_of(QueueMoves(queues, (), {}), URIS, "b", Place("here"))
    names = list(definitions.of("v").shovels)
    assert len(names) == 3
    assert all(len(name.encode()) <= 255 and "${" not in name for name in names)
