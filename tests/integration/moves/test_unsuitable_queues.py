"""Queues that a move would harm, or can't take from, are refused before anything is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.integration.federation.conftest import SiteOn
from tests.integration.federation.sites import Site
from tests.integration.moves.scene import NEW, OLD, Moves, fill, queue, waits
from tests.lab.node import Node

BROKERS: Final = [pytest.param(None, id="own"), pytest.param("sid", id="sid", marks=pytest.mark.versions)]


@pytest.fixture(params=BROKERS)
def at(broker_on: Callable[..., Node], site_on: SiteOn, request: pytest.FixtureRequest) -> Site:
    return site_on(broker_on(request.param))


def test_a_queue_that_goes_with_its_last_consumer_is_left_alone(at: Site, moves: Moves) -> None:
    """What stays, or is only looked at, would be deleted with it."""
    at.node.admin.queue(at.vhost, OLD, auto_delete=True)
    queue(at, NEW)
    fill(at, 3)
    for options in (("--dry-run",), (), ("--match", "n=1")):
        said = moves.refused("--from", at.uri, "--queue", OLD, "--to-queue", NEW, *options, status=4)
        assert "auto-delete queue" in said
        waits(at, 3)


def test_a_queue_whose_name_reads_like_a_refusal_is_moved(at: Site, moves: Moves) -> None:
    name = "inequivalent arg 'auto_delete'"
    queue(at, name)
    queue(at, NEW)
    fill(at, 3, name)
    assert moves.run(at.uri, "--to-queue", NEW, queue=name)["moved"] == 3


def test_a_stream_is_refused(at: Site, moves: Moves) -> None:
    queue(at, kind="stream")
    queue(at, NEW)
    fill(at, 3)
    for options in (("--dry-run",), ()):
        assert "is a stream" in moves.refused("--from", at.uri, "--queue", OLD, "--to-queue", NEW, *options, status=4)
