"""However a move ends, nothing is lost, at most what was in flight comes twice, and each account adds up."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.federation.conftest import SiteOn
from tests.integration.federation.sites import Site
from tests.integration.moves.scene import NEW, OLD, Moves, added_up, fill, queue
from tests.lab.node import Node
from tests.lab.preloaded import Started
from tests.lab.proxy import Proxy
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import DEADLINE, eventually

SLOWLY = 200_000  # bytes a second, so that 10,000 messages pass in ten seconds
IN_FLIGHT = 1_000  # the prefetch that a move begins with


def test_signals_and_a_cut(here: Site, there: Site, proxy_to: Callable[[Node], Proxy], moves: Moves) -> None:
    signals_and_a_cut(3_000, "quorum", (there, here), proxy_to(there.node), moves)


@pytest.mark.versions
@pytest.mark.thorough
def test_signals_and_a_cut_with_all_in_flight_on_the_newest_release(
    site_on: SiteOn, broker_on: Callable[..., Node], proxy_to: Callable[[Node], Proxy], moves: Moves
) -> None:
    there, here = site_on(broker_on("sid", name="second")), site_on(broker_on("sid"))
    proxy = proxy_to(there.node)
    proxy.throttle(SLOWLY)
    signals_and_a_cut(10_000, "classic", (there, here), proxy, moves)


def signals_and_a_cut(count: int, kind: str, sites: tuple[Site, Site], proxy: Proxy, moves: Moves) -> None:
    """Ctrl-C, kill -9 and a cut connection, each in the middle, and at last a move that ends."""
    there, here = sites
    queue(there, kind=kind)
    queue(here, NEW, kind=kind)
    fill(there, count)
    through = there.uri.replace(str(there.node.amqp_port), str(proxy.port))
    few = count < 10_000  # then slowly, to be in the middle of it also where this machine has much to do
    slowly = ("--rate", str(count // 25)) if few else ()
    moved = 0
    for number, end in enumerate((signal.SIGINT, signal.SIGKILL, None)):
        output = moves.directory / f"out{number}"
        process = moves.start(through, "--to", here.uri, "--to-queue", NEW, *slowly, output=output)
        before = depth(here.uri, NEW)
        in_the_middle(here, before + count // 10)
        cut(process, proxy, end)
        status = process.wait(DEADLINE)
        if end is signal.SIGKILL:
            assert status == -signal.SIGKILL
            continue
        assert status == 4
        account = added_up(json.loads(account_in(output)))
        assert account["notes"] == (["interrupted"] if end else [])
        assert bool(account["error"]) is (end is None)
        assert account["left"].get("in_doubt", 0) == 0 if end else True
        moved += account["moved"]
        if end is signal.SIGINT:
            waiting = depth(there.uri, OLD)
            assert (account["moved"], depth(here.uri, NEW), waiting) == (
                account["moved"],
                account["moved"],
                count - moved,
            )
    eventually(lambda: depth(there.uri, OLD) > 0, what="what was in flight is back")
    account = moves.run(there.uri, "--to", here.uri, "--to-queue", NEW, "--until-empty")
    assert (account["left"], account["waiting"]) == ({}, 0)
    # A quorum queue counts later than it confirms.
    eventually(lambda: depth(here.uri, NEW) >= count, what="all is counted")
    arrived = depth(here.uri, NEW)
    came = Counter(here.take(arrived, queue=NEW))
    assert set(came) == set(numbered(count)), "nothing is lost"
    twice = arrived - count
    assert twice <= 2 * IN_FLIGHT, "of the kill and of the cut what was in flight"
    assert max(came.values()) <= 3


def in_the_middle(here: Site, count: int) -> None:
    eventually(lambda: depth(here.uri, NEW) > count, what="it is in the middle")


def cut(process: Started, proxy: Proxy, end: signal.Signals | None) -> None:
    if end is None:
        proxy.cut()
    else:
        process.send_signal(end)


def account_in(output: Path) -> str:
    """The JSON document; errors are beside it."""
    text = output.read_text()
    return text[text.index("{") : text.rindex("}") + 1]
