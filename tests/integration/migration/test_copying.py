"""A plan, a copy, the same again, and a copy that goes on; between two brokers of one release."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from agent.migration.copying import HALF_MADE
from tests.conftest import Borrowed
from tests.integration.migration.scene import HURRIED, MigrationScene, scene
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.waiting import DEADLINE, eventually, holds_within

FOLLOWS = 30.0


def test_a_copy_has_all_and_the_second_has_nothing_to_do(migrated: MigrationScene) -> None:
    migrated.fill()
    planned = migrated.run("plan")
    assert (planned["safe"], planned["found"]) == (True, {})
    copied = migrated.run("copy")
    assert copied["complete"]
    assert copied["copied"] == {"vhost": 1, "policy": 1, "exchange": 3, "queue": 6, "binding": 6}
    source, target = migrated.source, migrated.target
    for kind in ("exchanges", "queues", "policies"):
        assert migrated.names(target, kind) == migrated.names(source, kind)
    assert migrated.bindings(target) == migrated.bindings(source)
    assert migrated.run("copy") == {
        "complete": True, "copied": {}, "found": copied["copied"], "left": [], "differs": [],
    }  # fmt: skip
    assert migrated.run("plan")["actions"] == []


def test_a_copy_changes_policies_and_leaves_all_else(migrated: MigrationScene) -> None:
    migrated.fill()
    admin, vhost = migrated.target.admin, migrated.vhost
    admin.vhost(vhost)
    admin.queue(vhost, "q0")
    admin.queue(vhost, "only here")
    admin.policy(vhost, "limits", "^q", definition={"max-length": 1})
    assert [each["name"] for each in migrated.run("plan", status=5)["objections"] if each["verdict"] == "differs"] == [
        "q0"
    ]
    copied = migrated.run("copy", status=5)
    assert [each["name"] for each in copied["differs"]] == ["q0"]
    assert admin.get("queues", vhost, "q0")["arguments"] == {}
    assert admin.get("policies", vhost, "limits")["definition"] == {"max-length": 100}
    assert migrated.has(migrated.target, "queues", "only here")


def test_a_vhost_that_is_half_made_is_made(migrated: MigrationScene) -> None:
    """As one left it whose connection ended while the broker made it: permissions come last. Where somebody has any,
    or there is anything, an operator decides who else gets them."""
    migrated.fill()
    admin, vhost = migrated.target.admin, migrated.vhost
    admin.vhost(vhost)
    admin.queue(vhost, "q0")
    admin.delete("permissions", vhost, "guest")
    lacking = f"it needs permission to configure it, in vhost '{vhost}'"
    assert lacking in migrated.run("copy", status=5)["left"][0]["reason"]
    admin.delete_vhost(vhost)
    admin.vhost(vhost)
    admin.delete("permissions", vhost, "guest")
    admin.user(other := f"other{vhost}", other)
    try:
        admin.permissions(vhost, other)
        assert lacking in migrated.run("copy", status=5)["left"][0]["reason"]
    finally:
        admin.delete("users", other)
    copied = migrated.run("copy")
    assert (copied["complete"], copied["copied"]["vhost"]) == (True, 1)
    assert migrated.run("plan")["actions"] == []


@pytest.mark.thorough  # brokers delete such a queue in five seconds
def test_a_quorum_queue_that_is_half_made_is_left(migrated: MigrationScene) -> None:
    """As one left it whose connection was lost while the broker made it."""
    migrated.fill()
    admin, vhost = migrated.target.admin, migrated.vhost
    admin.vhost(vhost)
    migrated.source.admin.queue(vhost, "half", arguments={"x-queue-type": "quorum"})
    make_half(migrated.target, vhost, "half")
    copied = migrated.run("copy", status=5)
    assert [(each["name"], each["reason"]) for each in copied["left"]] == [("half", HALF_MADE)]
    admin.delete("queues", vhost, "half")
    again = migrated.run("copy")
    assert (again["left"], again["copied"]) == ([], {"queue": 1})
    assert migrated.run("copy")["complete"]


def make_half(node: Node, vhost: str, name: str) -> None:
    """The broker knows the queue, and no process of it was ever started: where a broker is left that is cut off then,
    which takes the right millisecond."""
    made = node.eval(
        f'Node = node(), Name = rabbit_misc:r(<<"{vhost}">>, queue, <<"{name}">>),'
        f' Process = list_to_atom("{vhost}_{name}"), Arguments = [{{<<"x-queue-type">>, longstr, <<"quorum">>}}],'
        f' Queue = amqqueue:new(Name, {{Process, Node}}, true, false, none, Arguments, <<"{vhost}">>,'
        ' #{user => <<"guest">>}, rabbit_quorum_queue),'
        " Half = amqqueue:set_type_state(Queue, #{nodes => [Node]}),"
        " element(1, rabbit_amqqueue:internal_declare(Half, false))."
    )
    assert made == "created"


def test_what_is_chosen(migrated: MigrationScene) -> None:
    migrated.fill()
    migrated.write(queues={"^q[01]$": "shovel"}, exchanges=["^x$"], policies=[])
    copied = migrated.run("copy")
    assert copied["copied"] == {"vhost": 1, "exchange": 1, "queue": 2, "binding": 2}
    assert migrated.names(migrated.target, "queues") == {"q0", "q1"}


def test_two_ways_for_one_queue_are_refused_with_their_place(migrated: MigrationScene) -> None:
    migrated.fill()
    migrated.write(queues={"^q": "shovel", "0$": "queue-link"})
    ran = migrated.lab.agents.run(
        ("migrate", "copy", "migration.yaml"), cwd=migrated.directory, environment={}, deadline=DEADLINE
    )
    assert ran.status == 2
    assert re.match(r"migration\.yaml:\d+:\d+: queue 'q0' in vhost .* is matched by ", ran.err), ran


def test_a_rehearsal_leaves_nothing_and_says_what_it_needs(migrated: MigrationScene) -> None:
    migrated.fill()
    assert migrated.run("plan", "--rehearse")["objections"] == migrated.run("plan")["objections"]
    assert migrated.scratches() == []
    user = f"{migrated.vhost} user"
    migrated.target.admin.user(user, "secret-password", "policymaker")
    migrated.target.admin.vhost(migrated.vhost)
    migrated.target.admin.permissions(migrated.vhost, user)
    migrated.document["target"]["management"] = migrated.target.management_uri(user, "secret-password")
    migrated.write()
    ran = migrated.lab.agents.run(
        ("migrate", "plan", "--rehearse", "migration.yaml"), cwd=migrated.directory, environment={}, deadline=DEADLINE
    )
    migrated.target.admin.delete("users", user)
    assert ran.status == 4
    assert "the tag administrator" in ran.err, ran
    assert "left at the target" not in ran.err
    assert "create queue 'q0'" in ran.out, "the plan is shown all the same"
    assert "secret-password" not in ran.err + ran.out


def test_what_ends_in_the_middle_is_repeated(migrated: MigrationScene, tmp_path: Path) -> None:
    """A signal removes the scratch vhost of a rehearsal; what `kill -9` leaves has a name that a later rehearsal knows.
    What a copy did is found, however far it came."""
    migrated.fill(queues := 200)
    for end in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
        while not (ended := rehearsed_until(migrated, end, tmp_path / "out")):
            pass  # it was faster than the test
        assert ended == (-signal.SIGKILL if end is signal.SIGKILL else 130)
        left = migrated.scratches()
        for each in left:
            migrated.target.admin.delete_vhost(each)
        assert bool(left) is (end is signal.SIGKILL)
    while not killed_in_the_middle(migrated, f"q{queues // 3}", tmp_path / "out"):
        migrated.target.admin.delete_vhost(migrated.vhost)  # it was faster than the test
    copied = migrated.run("copy")
    assert copied["found"]["queue"] > 1
    assert copied["found"]["queue"] + copied["copied"].get("queue", 0) == queues + 3
    assert migrated.bindings(migrated.target) == migrated.bindings(migrated.source)


def rehearsed_until(migrated: MigrationScene, end: signal.Signals, output: Path) -> int:
    """The status of a rehearsal that gets a signal in the middle: 0 if it ended by itself before."""
    process = migrated.start("plan", "--rehearse", output=output)
    eventually(lambda: migrated.scratches() or process.poll() is not None, what="it has a scratch vhost")
    process.send_signal(end)
    return process.wait(DEADLINE)


def killed_in_the_middle(migrated: MigrationScene, queue: str, output: Path) -> bool:
    process = migrated.start("copy", output=output)
    eventually(lambda: migrated.has(migrated.target, "queues", queue), what="it is in the middle")
    process.send_signal(signal.SIGKILL)
    ended = process.wait(DEADLINE)
    assert ended in {0, -signal.SIGKILL}, output.read_text()
    return ended == -signal.SIGKILL


def test_a_copy_follows(migrated: MigrationScene, tmp_path: Path) -> None:
    process = migrated.start("copy", "--follow", output=tmp_path / "out", module=HURRIED)
    eventually(lambda: migrated.is_there(migrated.target), what="the vhost is copied")
    migrated.source.admin.queue(migrated.vhost, "later")
    eventually(lambda: migrated.has(migrated.target, "queues", "later"), what="a queue is copied")
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 0


@pytest.mark.thorough
def test_a_copy_follows_in_time_and_through_a_restart_of_the_source(
    lab: Lab, tmp_path: Path, borrowed: Borrowed, second_broker: Node, vhost: str
) -> None:
    source = borrowed()
    with scene(lab, tmp_path, f"followed {vhost}", (source, second_broker)) as migrated:
        process = migrated.start("copy", "--follow", output=tmp_path / "out")
        eventually(lambda: migrated.is_there(second_broker), what="the vhost is copied")
        names = iter(("later", "much later", "last"))

        def attempt() -> float:
            source.admin.queue(migrated.vhost, name := next(names))
            begun = time.monotonic()
            eventually(lambda: migrated.has(second_broker, "queues", name), what="a queue is copied")
            return time.monotonic() - begun

        holds_within(FOLLOWS, attempt)
        source.stop()
        eventually(lambda: "source" in (tmp_path / "out").read_text(), what="the source is missed")
        source.start()
        source.admin.queue(migrated.vhost, "after")
        source.admin.delete("queues", migrated.vhost, "later")
        eventually(lambda: migrated.has(second_broker, "queues", "after"), what="it goes on")
        assert migrated.has(second_broker, "queues", "later"), "a copy never deletes"
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
