"""Collections of garbage leave out what has outlived one, and look at everything in the end."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from agent.cli.run import MUCH, OBJECTS_OF_LINK, PART, SPARE_PARTS, collect_in_parts


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    callbacks, threshold = [*gc.callbacks], gc.get_threshold()
    yield
    gc.callbacks[:] = callbacks
    gc.set_threshold(*threshold)
    gc.unfreeze()


@pytest.mark.parametrize("links", [0, 1_000])
def test_what_outlives_a_collection_is_left_out_for_so_long(links: int) -> None:
    collect_in_parts(lambda: links)
    expected = int(SPARE_PARTS + MUCH * links * OBJECTS_OF_LINK / PART)
    for _ in range(2):
        for _ in range(expected):
            gc.collect()
            assert gc.get_freeze_count()
        gc.collect()
        assert not gc.get_freeze_count(), "the next one looks at everything"


def test_younger_ones_change_nothing() -> None:
    collect_in_parts(lambda: 0)
    frozen = gc.get_freeze_count()
    kept: list[list[int]] = [[] for _ in range(1_000)]
    gc.collect(1)
    assert gc.get_freeze_count() <= frozen, "what is left out may go, and nothing more is left out"
    assert kept
