"""What messages of a hostile upstream may cost, and what the link reports of an upstream that breaks the protocol."""

from __future__ import annotations

from tests.hostile.misbehaviours import different_hop_arrays, skipped_delivery_tags
from tests.hostile.peer import HostileBroker
from tests.hostile.scene import Scene
from tests.lab.waiting import eventually

KEPT = 60.0  # MiB at most, of 115 that come


def test_no_memory_is_kept_of_headers_that_are_large_and_never_come_again(scene: Scene) -> None:
    with HostileBroker(different_hop_arrays) as hostile:
        scene.start(hostile.uri)
        levels: list[float] = []

        def all_came() -> bool:
            came = scene.hostile_status()["dropped"] == 1_000
            levels.append(scene.endure(0.2))
            return bool(came)

        eventually(all_came, what="all have come and are dropped")
        assert max(levels) < KEPT
        scene.stop()


def test_a_gap_in_delivery_tags_is_reported_instead_of_a_link_that_never_acknowledges(scene: Scene) -> None:
    with HostileBroker(skipped_delivery_tags) as hostile:
        scene.start(hostile.uri)
        eventually(lambda: "delivery tag 3 came where 2 was due" in (scene.hostile_status()["error"] or ""), what="why")
        scene.stop()
