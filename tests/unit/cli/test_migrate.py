"""What `migrate` prints, and how it exits."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from agent.cli.main import run
from agent.cli.migration_text import (
    MOST_LINES,
    account_as_json,
    account_lines,
    is_complete,
    masked,
    plan_as_json,
    plan_lines,
    warnings_text,
)
from agent.core.migration.difference import MigrationPlan, plan_migration
from agent.core.migration.objects import ClusterObjects, ObjectKind, queue_key
from agent.core.migration.selection import choose
from agent.migration.copying import CopyAccount
from tests.unit.cli.test_link_table import COLOUR
from tests.unit.core.migration.clusters import (
    ALL,
    NEW,
    binding,
    choice,
    cluster,
    empty,
    exchange,
    policy,
    queue,
    selecting,
)

EXPORT = {"rabbit_version": "3.10.8", "vhosts": [{"name": "v"}], "queues": [{**queue(), "vhost": "v"}]}


def planned(source: ClusterObjects, target: ClusterObjects | None = None) -> MigrationPlan:
    return plan_migration(source, target or empty(), choose(source, ALL))


def test_a_plan() -> None:
    source = cluster(
        queues=[queue(f"q{number}", x_queue_version=1) for number in range(25)],
        policies=[policy("p\x1b[31m", ha_mode="all", max_length=1)],
    )
    lines = [COLOUR.sub("", line) for line in plan_lines(planned(source))]
    assert lines[0] == "  + create vhost 'v'"
    assert lines[1] == "  + create policy 'p\\x1b[31m' in vhost 'v'"
    assert "5 more queues (--format json shows all)" in lines
    named = "queues 'q0', 'q1', 'q10', 'q11', 'q12' and 20 more in vhost 'v'"
    assert f"refused {named}: x-queue-version: 1 is gone with 4.0" in lines
    assert lines[-1] == "1 vhost, 1 policy, 25 queues to create; 26 refused, 25 trap"


def test_a_plan_with_nothing_to_do_and_one_without_a_target() -> None:
    source = cluster(queues=[queue()])
    assert list(plan_lines(planned(source, source))) == ["nothing to do; 1 vhost, 1 queue found as wanted"]
    assert list(plan_lines(planned(source), with_actions=False)) == ["1 vhost, 1 queue: nothing refused"]


def test_a_plan_is_bounded_also_where_reasons_differ() -> None:
    exchanges, queues = [exchange("x")], [queue(f"q{number}") for number in range(500)]
    source = cluster(exchanges=exchanges, queues=queues, bindings=[binding("x", each["name"]) for each in queues])
    lines = list(plan_lines(plan_migration(source, empty(), choose(source, selecting(choice("^none$"))))))
    assert len(lines) < 2 * MOST_LINES + 10
    assert "450 more trap (--format json shows all)" in lines


def test_logins_arent_shown() -> None:
    assert masked("amqp://u:p@w/x@h/v amqp://h, https://me@h") == "amqp://[redacted]@h/v amqp://h, https://[redacted]@h"
    uri = "amqp://u:s3cret@h/"
    bound = {**binding("amq.headers", "q"), "arguments": {"uri": uri}}
    source = cluster(policies=[policy(x_uri=uri)], queues=[queue(x_note=[{"a": uri}])], bindings=[bound])
    plan = planned(source)
    assert "s3cret" not in json.dumps(plan_as_json(plan, {}))
    account = CopyAccount(left={each.key: uri for each in plan.actions})
    assert "s3cret" not in json.dumps(account_as_json(plan, account))


def test_an_account() -> None:
    source = cluster(queues=[queue("a", x_max_length=1), *(queue(f"b{number:02}") for number in range(60))])
    plan = planned(source, cluster(NEW, queues=[queue("a")]))
    account = CopyAccount(Counter({ObjectKind.QUEUE: 0}), {queue_key("v", f"b{n:02}"): "no\nroom" for n in range(60)})
    lines = [COLOUR.sub("", line) for line in account_lines(plan, account)]
    assert lines[0] == "left queue 'b00' in vhost 'v': no\\nroom"
    assert lines[-3:] == [
        "10 more left (--format json shows all)",
        "differs at the target, left as it is: queue 'a' in vhost 'v'",
        "copied nothing; found 1 vhost; left 60",
    ]
    assert not is_complete(plan, account)
    assert not is_complete(plan, CopyAccount()), "it differs"
    done = planned(source, source)
    assert is_complete(done, CopyAccount())
    assert warnings_text(done) is None


def test_what_there_is_to_know() -> None:
    plan = planned(cluster(queues=[queue(x_queue_version=1)]))
    assert warnings_text(plan) == "2 things to know, 1 of them refused as they are at the source: see migrate plan"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan"], "give the migration file, or --source-definitions"),
        (["plan", "--source-definitions", "e.json"], "need each other"),
        (["plan", "--source-definitions", "e.json", "--target-release", "new"], "'new' isn't known"),
        (["plan", "--source-definitions", "e.json", "--target-release", "3.9"], "known are 3.10.0 to 4.3"),
        (["plan", "--source-definitions", "e.json", "--target-release", "9.9"], "known are 3.10.0 to 4.3"),
        (["plan", "--source-definitions", "e.json", "--target-release", "4.3", "--rehearse"], "needs a target"),
    ],
)
def test_what_cant_be_meant(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["migrate", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "status"), [({}, 0), ({"x-queue-version": 1}, 5)])
def test_an_export_alone(
    arguments: dict[str, int], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "e.json"
    path.write_text(json.dumps({**EXPORT, "queues": [{**queue(), "vhost": "v", "arguments": arguments}]}))
    command = ["migrate", "plan", "--source-definitions", str(path), "--target-release", "4.3", "--format", "json"]
    assert run(command) == status
    found = json.loads(capsys.readouterr().out)
    assert found["safe"] is (status == 0)
    assert found["target"] == {"cluster": None, "version": "4.3"}
    assert [each["name"] for each in found["actions"]] == ["v", "q"]
    assert run([*command[:-2]]) == status
    assert capsys.readouterr().out.splitlines()[0].startswith("source: cluster ")
