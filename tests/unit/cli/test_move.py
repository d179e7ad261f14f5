"""What `move` prints, and how it exits."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent.amqp.data.rewriting import Destination
from agent.cli import move
from agent.core.rules.moves import MoveAccount
from agent.errors import TransientError, UsageError
from agent.links.ends import End
from agent.runtime.move_chooser import MoveOptions
from agent.runtime.moves import Move

OPTIONS = MoveOptions("q", Destination("", "new"))
DRY = MoveOptions("q", Destination("", "new"), is_dry=True)


def account(**values: Any) -> MoveAccount:
    return MoveAccount(**{"left": Counter(), "seconds": 2.0, **values})


@pytest.mark.parametrize(
    ("found", "options", "status"),
    [
        (account(taken=3, moved=3), OPTIONS, 0),
        (account(taken=3, moved=2, left=Counter(not_chosen=1)), OPTIONS, 0),
        (account(taken=3, moved=2, left=Counter(refused=1)), OPTIONS, 4),
        (account(taken=2, moved=2, notes=["interrupted"]), OPTIONS, 4),
        (account(taken=2, moved=2, error=TransientError("lost")), OPTIONS, 4),
        (account(), OPTIONS, 5),
        (account(taken=1, left=Counter(not_chosen=1)), OPTIONS, 5),
        (account(taken=1, left=Counter(looked_at=1)), DRY, 0),
        (account(taken=1, left=Counter(not_chosen=1)), DRY, 5),
        (account(taken=2, left=Counter(looked_at=1, no_exchange=1)), DRY, 4),
    ],
)
def test_the_exit_status(found: MoveAccount, options: MoveOptions, status: int) -> None:
    assert move.status_of(found, options) == status


def test_the_last_line_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    move.say_account(account(taken=1_010, moved=1_000, left=Counter(refused=7, unroutable=3), waiting=10), OPTIONS)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "refused 7: the destination refused it (basic.nack): is its queue full?"
    assert lines[-2] == "10 messages wait in queue 'q'"
    assert lines[-1] == "taken 1,010 = moved 1,000 + left 10 (refused 7, unroutable 3), in 2 s (500/s)"


def test_a_dry_run_says_where_they_would_go(capsys: pytest.CaptureFixture[str]) -> None:
    first = [{"exchange": "x", "routing_key": "k", "bytes": 3, "headers": {"n": 1}}]
    destinations = Counter({("x", "k"): 2, ("", "q2"): 1})
    move.say_account(account(there=5, taken=3, destinations=destinations, first=first, left=Counter(looked_at=3)), DRY)
    assert capsys.readouterr().out.splitlines() == [
        "exchange 'x' with key 'k', 3 bytes: {'n': 1}",
        "2 to exchange 'x' with key 'k'",
        "1 to queue 'q2'",
        "looked at 3 of 5, moved none (--dry-run)",
    ]


@pytest.mark.parametrize(
    ("text", "vhost", "host"),
    [
        ("eu/1", "v", "one"),
        ("v/eu/1", "v", "one"),
        ("v/downstream", "v", "two"),
        ("downstream", "/", "own"),
        ("w/downstream", "/", "own"),
        ("w/origin", "w", "three"),
        ("origin", None, "2 upstreams are called so"),
        ("v/1", None, "no such upstream"),
    ],
)
async def test_a_broker_by_its_name(tmp_path: Path, text: str, vhost: str | None, host: str) -> None:
    upstreams = {
        "v": {"eu/1": "one", "downstream": "two", "origin": "four"},
        "w": {"origin": "three"},
    }
    path = tmp_path / "agent.json"
    made = {each: {name: {"uri": f"amqp://{at}"} for name, at in there.items()} for each, there in upstreams.items()}
    vhosts = {each: {"upstreams": there} for each, there in made.items()}
    path.write_text(json.dumps({"downstream": {"uri": "amqp://own"}, "vhosts": vhosts}))
    if " " in host:
        with pytest.raises(UsageError, match=host):
            await move.named_end(path, "--from", "source", text)
        return
    end = await move.named_end(path, "--from", "source", text)
    assert (end.default_vhost, end.uris[0].host) == (vhost, host)


async def test_the_progress() -> None:
    limited = Move(End("source", ()), End("destination", ()), MoveOptions("q", Destination("", "new"), limit=300))
    limited.account.there, limited.counts.forwarded = 1_000, 250
    made = Move(End("source", ()), End("destination", ()), OPTIONS)
    made.account.there = 1_000
    made.counts.forwarded = 250
    made.counts.unpublishable = {"refused": 5}
    made.blocked = "low on memory"
    assert "250 of 300 moved, 25/s, 2 s left" in move.progress(limited, 10.0)
    assert move.progress(made, 10.0) == (
        "[#######-----------------------] 250 of 1,000 moved, 25/s, 29 s left, 5 stay, "
        "blocked by the destination: low on memory"
    )
