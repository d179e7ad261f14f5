"""The agent with a wall clock that is wrong by as many seconds as the file `step` beside its configuration says."""

from __future__ import annotations

import sys
import time
from pathlib import Path

if __name__ == "__main__":
    from agent.cli.main import main

    step, true = Path(sys.argv[-1]).parent / "step", time.time
    time.time = lambda: true() + float(step.read_text())
    main()
