"""A process that outlives the tests and leaves nothing of their lab, whether they end well or are killed.

It waits until its standard input says or is closed, or the process that it watches is gone, then kills every process
that carries the mark and removes the directories.
"""

import os
import select
import shutil
import sys
import time

from tests.lab import processes

PATIENCE = 10.0


def wait_for_the_end(watched: int) -> None:
    poll = select.poll()
    poll.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
    try:
        # Children that the tests forked without exec hold the pipe open too: the pipe alone would not tell.
        poll.register(os.pidfd_open(watched), select.POLLIN)
    except ProcessLookupError:
        return
    poll.poll()


def main(mark: str, watched: str, *directories: str) -> None:
    wait_for_the_end(int(watched))
    deadline = time.monotonic() + PATIENCE
    while processes.end(mark) and time.monotonic() < deadline:
        time.sleep(0.005)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
