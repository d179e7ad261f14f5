"""The agent's command, which on SIGUSR2 writes its tasks' names into `tasks` beside its configuration."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from types import FrameType

if __name__ == "__main__":
    from agent.cli.main import main

    counted = Path(sys.argv[-1]).parent / "tasks"

    def count(_signal: int, _frame: FrameType | None) -> None:
        written = counted.with_suffix(".new")
        written.write_text("\n".join(sorted(task.get_name() for task in asyncio.all_tasks())))
        written.replace(counted)

    signal.signal(signal.SIGUSR2, count)
    main()
