"""The agent's command in a process that has few descriptors from its start, as it sizes itself by them."""

import resource
from typing import Final

from agent.cli.main import main

DESCRIPTORS: Final = 256

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    main()
