"""Whatever is observed, nothing is said to have moved that is there, or could still come."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.core.migration.fences import IN_FORCE_AFTER, NOTHING, SETTLED_AFTER, ClientFence, Permissions
from agent.core.migration.objects import queue_key
from agent.core.migration.verdict import (
    MOST_REASONS,
    PRODUCT,
    MoveVerdict,
    SeenConnection,
    SeenQueue,
    SeenVhost,
    SourceLook,
    SourceVerdict,
    judge,
)
from agent.core.replicas.slots import lease_queue

MOVERS = frozenset({"mover"})
QUEUE = queue_key("v", "q")
ALL = Permissions(".*", ".*", ".*")
TAKEN = Permissions(NOTHING, NOTHING, ".*")
SINCE, NOW = 1_000.0, 2_000.0
EMPTY = SeenQueue("classic", "running", 0, 0, 0)
FENCE = ClientFence("v", "shop", ALL, SINCE)
YOUNG = SeenConnection("c", "v", "shop", "AMQP 0-9-1", "host", "x", SINCE + SETTLED_AFTER)
DONE = SourceLook(
    NOW,
    {"v": SeenVhost({"q": EMPTY})},
    (YOUNG, SeenConnection("m", "v", "mover", "AMQP 0-9-1", "host", PRODUCT, 1.0)),
    {("v", "shop"): TAKEN, ("v", "mover"): TAKEN},
    {("v", "shop"): FENCE},
)


def said(first: SourceLook, last: SourceLook | None = None) -> SourceVerdict:
    return judge((first, last or first), [QUEUE], {"v"}, MOVERS)


def verdict(first: SourceLook, last: SourceLook | None = None) -> tuple[MoveVerdict, str]:
    return said(first, last).queues[QUEUE]


def with_queue(queue: SeenQueue | None, **others: SeenQueue) -> SourceLook:
    queues = {**others} if queue is None else {"q": queue, **others}
    return replace(DONE, vhosts={"v": SeenVhost(queues)})


def with_client(connection: SeenConnection) -> SourceLook:
    return replace(DONE, connections=(*DONE.connections, connection))


def test_what_is_done() -> None:
    assert verdict(DONE)[0] is MoveVerdict.MOVED
    assert said(DONE).can_be_switched_off(is_unfenced_accepted=False)


QUORUM = replace(EMPTY, kind="quorum", members=3, online=2)
STATES = [
    (replace(EMPTY, messages=3, ready=2, unacknowledged=1), MoveVerdict.NOT_YET, "2 wait, 1 unacknowledged"),
    (
        replace(EMPTY, messages=1, unacknowledged=1, consumers=("consumer 'a' of host h (user u)",)),
        MoveVerdict.NOT_YET,
        "1 unacknowledged by consumer 'a' of host h (user u)",
    ),
    (replace(EMPTY, messages=2), MoveVerdict.NOT_YET, "2 on their way to a dead-letter exchange"),
    (replace(EMPTY, messages=1204, ready=1204), MoveVerdict.NOT_YET, "1,204 wait"),
    (replace(EMPTY, messages=None), MoveVerdict.NOT_PROVABLE, "isn't known"),
    (replace(EMPTY, ready=None), MoveVerdict.NOT_PROVABLE, "isn't known"),
    (replace(EMPTY, unacknowledged=None), MoveVerdict.NOT_PROVABLE, "isn't known"),
    (replace(EMPTY, state="down"), MoveVerdict.NOT_PROVABLE, "its state is 'down'"),
    (replace(EMPTY, state=None), MoveVerdict.NOT_PROVABLE, "its state isn't known"),
    (replace(EMPTY, kind="stream"), MoveVerdict.NOT_PROVABLE, "a stream keeps"),
    (QUORUM, MoveVerdict.MOVED, ""),
    (replace(QUORUM, online=1), MoveVerdict.NOT_PROVABLE, "1 of its 3 replicas are online"),
    (replace(QUORUM, members=2, online=1), MoveVerdict.NOT_PROVABLE, "1 of its 2 replicas"),
    (replace(QUORUM, online=None), MoveVerdict.NOT_PROVABLE, "0 of its 3"),
    (replace(QUORUM, members=None), MoveVerdict.NOT_PROVABLE, "2 of its unknown"),
    (None, MoveVerdict.NOT_PROVABLE, "wasn't there at both looks"),
]


@pytest.mark.parametrize(("queue", "expected", "reason"), STATES)
def test_the_state_of_a_queue_at_either_look(queue: SeenQueue | None, expected: MoveVerdict, reason: str) -> None:
    found, why = verdict(DONE, with_queue(queue))
    assert (found, reason in why) == (expected, True), why
    assert verdict(with_queue(queue), DONE)[0] is expected


CLIENTS = [
    (YOUNG, MoveVerdict.MOVED, ""),
    (replace(YOUNG, connected_at=SINCE + 9), MoveVerdict.NOT_PROVABLE, "connected before the fence"),
    (replace(YOUNG, connected_at=None), MoveVerdict.NOT_PROVABLE, "connected before the fence"),
    (replace(YOUNG, user="other"), MoveVerdict.NOT_PROVABLE, "user 'other' (AMQP 0-9-1 from host)"),
    (replace(YOUNG, user=None), MoveVerdict.NOT_PROVABLE, "user 'unknown'"),
    (replace(YOUNG, user="mover"), MoveVerdict.NOT_PROVABLE, "user 'mover'"),
    (replace(YOUNG, user="other", product=PRODUCT), MoveVerdict.NOT_PROVABLE, "user 'other'"),
    (replace(YOUNG, user="other", vhost=None), MoveVerdict.NOT_PROVABLE, "user 'other'"),
    (replace(YOUNG, connected_at=NOW + 5), MoveVerdict.MOVED, ""),
    (replace(YOUNG, connected_at=NOW + 6), MoveVerdict.NOT_PROVABLE, "the clocks of the source's nodes are apart"),
    (replace(YOUNG, user="mover", product=PRODUCT), MoveVerdict.MOVED, ""),
]


@pytest.mark.parametrize(("client", "expected", "reason"), CLIENTS)
def test_a_connection_at_either_look(client: SeenConnection, expected: MoveVerdict, reason: str) -> None:
    for looks in ((DONE, with_client(client)), (with_client(client), DONE)):
        found, why = verdict(*looks)
        assert (found, reason in why) == (expected, True), why


@pytest.mark.parametrize("permissions", [{("v", "mover"): ALL}, {}])
def test_an_agent_of_the_move_that_may_publish(permissions: dict[tuple[str, str], Permissions]) -> None:
    """It may be another one that writes into the source."""
    look = replace(DONE, permissions={("v", "shop"): TAKEN, **permissions})
    for looks in ((DONE, look), (look, DONE)):
        found, why = verdict(*looks)
        assert (found, "take 'write' from that user" in why) == (MoveVerdict.NOT_PROVABLE, True), why


def test_connections_elsewhere_keep_the_cluster() -> None:
    found = said(with_client(replace(YOUNG, vhost="w", user="other")))
    assert found.queues[QUEUE][0] is MoveVerdict.MOVED
    assert found.reasons == ()  # no such vhost was seen
    seen = replace(with_client(replace(YOUNG, vhost="w", user="other")), vhosts={**DONE.vhosts, "w": SeenVhost()})
    assert not said(seen).can_be_switched_off(is_unfenced_accepted=True)


OPEN = [
    ({("v", "shop"): ALL}, DONE.fences, NOW, "users who may publish aren't fenced: 'shop'"),
    ({("v", "shop"): TAKEN, ("v", "new"): ALL}, DONE.fences, NOW, "'new'"),
    ({("v", "shop"): TAKEN, ("v", "mover"): ALL}, DONE.fences, NOW, "'mover'"),
    ({("v", "shop"): TAKEN}, DONE.fences, SINCE + IN_FORCE_AFTER - 5, "the fence of user 'shop' counts in 5 s"),
    ({("v", "shop"): TAKEN}, {("v", "shop"): replace(FENCE, since=None)}, NOW, "the fence of user 'shop' isn't done"),
]


@pytest.mark.parametrize(("permissions", "fences", "now", "reason"), OPEN)
def test_who_may_come_back(
    permissions: dict[tuple[str, str], Permissions], fences: dict[tuple[str, str], ClientFence], now: float, reason: str
) -> None:
    alone = replace(DONE, connections=())
    look = replace(alone, permissions=permissions, fences=fences, at=now)
    for looks in ((alone, look), (look, alone)):
        found = said(*looks)
        assert found.queues[QUEUE][0] is MoveVerdict.EMPTY
        assert reason in found.queues[QUEUE][1]
        assert not found.can_be_switched_off(is_unfenced_accepted=False)
        assert found.can_be_switched_off(is_unfenced_accepted=True)


def test_who_never_could_needs_no_fence() -> None:
    reader = {("v", "reader"): Permissions("^$", "", ".*"), ("w", "elsewhere"): ALL}
    assert verdict(replace(DONE, permissions={**DONE.permissions, **reader}))[0] is MoveVerdict.MOVED


def test_a_user_that_clients_may_share_with_the_move() -> None:
    shared = replace(DONE, connections=(), permissions={("v", "mover"): ALL}, fences={})
    assert verdict(shared)[0] is MoveVerdict.EMPTY
    assert "aren't fenced: 'mover'" in verdict(shared)[1]
    assert verdict(replace(shared, permissions={("v", "mover"): TAKEN}))[0] is MoveVerdict.MOVED


def test_what_comes_without_a_connection() -> None:
    dying = replace(EMPTY, messages=1, ready=1, dead_letters=True)
    assert verdict(with_queue(EMPTY, dying=dying)) == (
        MoveVerdict.NOT_PROVABLE,
        "dead letters may come from 'dying'",
    )
    assert verdict(with_queue(EMPTY, dying=replace(EMPTY, dead_letters=True)))[0] is MoveVerdict.MOVED
    for look in (replace(DONE, doubts=("why",)), replace(DONE, vhosts={"v": SeenVhost({"q": EMPTY}, ("why",))})):
        for looks in ((DONE, look), (look, DONE)):
            assert verdict(*looks) == (MoveVerdict.NOT_PROVABLE, "why")


KEPT = replace(EMPTY, messages=1, ready=1)


@pytest.mark.parametrize(
    ("name", "queue", "reason"),
    [
        ("left", KEPT, "which isn't selected: 1 waits"),
        ("left", replace(EMPTY, messages=None), "which isn't selected: how many"),
        ("federation-agent: quarantine", KEPT, "which an agent or the federation plugin keeps"),
        ("federation: x -> y", replace(KEPT, is_agents=True), "which an agent or the federation plugin keeps"),
        ("amq.gen-x", KEPT, "which ends with its connection"),
        ("mine", replace(KEPT, ends_with_connection=True), "which ends with its connection"),
        ("stream", replace(EMPTY, kind="stream"), "a stream keeps"),
    ],
)
def test_other_queues_keep_the_cluster(name: str, queue: SeenQueue, reason: str) -> None:
    found = said(with_queue(EMPTY, **{name: queue}))
    assert found.queues[QUEUE][0] is MoveVerdict.MOVED
    assert len(found.reasons) == 1
    assert reason in found.reasons[0]
    assert not found.can_be_switched_off(is_unfenced_accepted=True)


def test_leases_of_a_move_back_keep_nothing() -> None:
    name = lease_queue("migrate from new: v", 7)
    assert said(with_queue(EMPTY, **{name: KEPT})).reasons == ()
    assert said(replace(DONE, vhosts={**DONE.vhosts, "/": SeenVhost({name: KEPT})})).reasons == ()


def test_vhosts_that_arent_in_the_file_keep_the_cluster() -> None:
    for seen in (SeenVhost({"x": EMPTY}), SeenVhost(doubts=("it can't be read: why",))):
        found = said(replace(DONE, vhosts={**DONE.vhosts, "w": seen}))
        assert len(found.reasons) == 1
        assert "vhost 'w'" in found.reasons[0]
    assert said(replace(DONE, vhosts={**DONE.vhosts, "w": SeenVhost()})).reasons == ()


def test_many_reasons_are_said_once() -> None:
    """Each queue has a text of the first of them, and the whole has no more than can be read."""
    many = tuple(SeenConnection("c", "v", f"user{number}") for number in range(1_000))
    names = [queue_key("v", f"q{number}") for number in range(1_000)]
    look = replace(DONE, vhosts={"v": SeenVhost({key.name: EMPTY for key in names})}, connections=many)
    found = judge((look, look), names, {"v"}, MOVERS)
    (reason,) = {reason for _, reason in found.queues.values()}
    assert reason.endswith("; and 997 more")
    assert len(reason) < 1_000
    assert len(found.reasons) == MOST_REASONS + 1
    assert found.reasons[-1] == "and 901 more reasons"
    long = said(replace(DONE, doubts=("x" * 100_000,)))
    assert len(long.queues[QUEUE][1]) == len(long.reasons[0]) == 1_000


def test_a_vhost_that_isnt_seen() -> None:
    found = judge((replace(DONE, vhosts={}),) * 2, [], {"v"}, MOVERS)
    assert not found.can_be_switched_off(is_unfenced_accepted=True)


FIGURES = st.sampled_from([0, 0, 0, 0, 1, None])
QUEUES = st.builds(
    SeenQueue,
    st.sampled_from(["classic", "quorum", "stream"]),
    st.sampled_from(["running", "running", "running", "down", None]),
    FIGURES,
    FIGURES,
    FIGURES,
    st.sampled_from([3, 2, 0, None]),
    st.sampled_from([3, 2, 1, None]),
    st.booleans(),
    st.booleans(),
)
USERS = st.sampled_from(["mover", "shop", "other"])
CONNECTIONS = st.builds(
    SeenConnection,
    st.just("c"),
    st.sampled_from(["v", "w", None]),
    st.one_of(USERS, st.none()),
    product=st.sampled_from([PRODUCT, "x", None]),
    connected_at=st.sampled_from([None, SINCE - 1, SINCE + 5, SINCE + 10, NOW]),
)
PERMISSIONS = st.sampled_from([ALL, TAKEN, TAKEN, Permissions(".*", "", ".*"), Permissions(NOTHING, ".*", "")])
VHOSTS = st.dictionaries(
    st.just("v"),
    st.builds(SeenVhost, st.dictionaries(st.sampled_from(["q", "other"]), QUEUES), st.sampled_from([(), ("why",)])),
)
LOOKS = st.builds(
    SourceLook,
    st.sampled_from([NOW, NOW, SINCE + 30]),
    st.one_of(st.just(DONE.vhosts), VHOSTS),
    st.one_of(st.just(DONE.connections), st.lists(CONNECTIONS, max_size=2)),
    st.one_of(
        st.just(DONE.permissions),
        st.dictionaries(st.tuples(st.sampled_from(["v", "w"]), USERS), PERMISSIONS, max_size=3),
    ),
    st.one_of(
        st.just(DONE.fences),
        st.dictionaries(st.just(("v", "shop")), st.sampled_from([FENCE, replace(FENCE, since=None)])),
    ),
    st.sampled_from([(), (), ("why",)]),
)
"""In each part it is often as where all is done: otherwise hardly any is."""


@given(LOOKS, LOOKS)
@example(DONE, DONE)
def test_moved_means_that_nothing_is_there_and_nothing_can_come(first: SourceLook, last: SourceLook) -> None:
    found = said(first, last)
    if found.queues[QUEUE][0] is MoveVerdict.MOVED:
        for look in (first, last):
            assert _is_safe(look)
    if found.can_be_switched_off(is_unfenced_accepted=False):
        assert found.queues[QUEUE][0] is MoveVerdict.MOVED
        for look in (first, last):
            for queue in look.vhosts["v"].queues.values():
                assert (queue.messages, queue.ready, queue.unacknowledged) == (0, 0, 0)


def _is_safe(look: SourceLook) -> bool:
    vhost = look.vhosts["v"]
    queue = vhost.queues["q"]
    is_there = (queue.messages, queue.ready, queue.unacknowledged) == (0, 0, 0) and queue.state == "running"
    is_led = queue.kind == "classic" or (queue.kind == "quorum" and (queue.online or 0) * 2 > (queue.members or 99))
    dying = any(each.dead_letters and each.messages != 0 for each in vhost.queues.values())
    fence = look.fences.get(("v", "shop"))
    since = None if fence is None else fence.since
    moving = [each for each in look.connections if (each.user, each.product) == ("mover", PRODUCT)]
    others = [each for each in look.connections if each.vhost != "w" and each not in moving]
    are_young = all(
        each.user == "shop" and since is not None and each.connected_at is not None and each.connected_at > since + 9
        for each in others
    )
    are_readers = all(each.vhost == "w" or ("v", "mover") in look.permissions for each in moving)
    writing = [user for (of, user), each in look.permissions.items() if of == "v" and each.write not in ("", "^$")]
    has_begun = fence is None or ("v", "shop") not in look.permissions or (since is not None and look.at > since + 60)
    no_doubt = not look.doubts and not vhost.doubts
    are_others = are_young and are_readers and not writing
    return is_there and is_led and not dying and are_others and has_begun and no_doubt
