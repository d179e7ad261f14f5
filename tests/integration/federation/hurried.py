"""The agent's command, where the bindings that it asserts by and by come round ten times as often."""

from agent.cli.main import main
from agent.runtime import tending

if __name__ == "__main__":
    tending.ASSERT_ALL /= 10  # type: ignore[misc]
    main()
