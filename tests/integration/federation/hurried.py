"""The agent's command, where exchanges are looked at and bindings are asserted ten times as often."""

from agent.cli.main import main
from agent.runtime import lookout, tending

if __name__ == "__main__":
    lookout.LOOK_EVERY /= 10  # type: ignore[misc]
    tending.ASSERT_ALL /= 10  # type: ignore[misc]
    main()
