"""The agent's command, which on SIGUSR2 writes what it holds into `held` beside its configuration, garbage excepted."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import signal
import sys
from pathlib import Path
from types import FrameType

_MALLINFO = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _Mallinfo(ctypes.Structure):
    """See mallinfo(3)."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _MALLINFO)


if __name__ == "__main__":
    from agent.cli.main import main

    counted = Path(sys.argv[-1]).parent / "held"
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo

    def count(_signal: int, _frame: FrameType | None) -> None:
        gc.collect()
        found = mallinfo()
        held = {
            "tasks": sorted(task.get_name() for task in asyncio.all_tasks()),
            "blocks": sys.getallocatedblocks(),  # of 512 bytes at most; larger ones are of malloc
            "bytes": found.uordblks + found.hblkhd,
        }
        written = counted.with_suffix(".new")
        written.write_text(json.dumps(held))
        written.replace(counted)

    signal.signal(signal.SIGUSR2, count)
    main()
