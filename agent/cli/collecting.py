"""Python's collections of garbage, each of which is short: the loop stands still meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Final

FULL: Final = 2  # the generation
COLLECT_AFTER: Final = (1_000, 10, 2)
PART: Final = 1_000 * 10 * 2  # objects that are made between two full collections
OBJECTS_OF_LINK: Final = 300
SPARE_PARTS: Final = 20
MUCH: Final = 2  # times what there should be


def collect_in_parts(links: Callable[[], int]) -> None:
    """A full collection looks at all that there is: a thousand links are 300,000 objects, and that takes a tenth of a
    second and more. So what has outlived one is left out of those that follow. It may be garbage by now, a few
    hundredths of it are: where twice as much was made as there should be, by the number of `links`, there is a
    collection that looks at everything.
    """
    parts = 0

    def collected(phase: str, info: dict[str, Any]) -> None:
        nonlocal parts
        if phase != "stop" or info["generation"] != FULL:
            return
        parts += 1
        if parts <= SPARE_PARTS + MUCH * links() * OBJECTS_OF_LINK / PART:
            gc.freeze()
        else:
            gc.unfreeze()
            parts = 0

    gc.freeze()  # the modules, which are never let go
    gc.set_threshold(*COLLECT_AFTER)
    gc.callbacks.append(collected)
