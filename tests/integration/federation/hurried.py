"""The agent's command, where exchanges and certificates are looked at ten times as often, and bindings asserted the
more."""

from agent.cli.main import main
from agent.links.exchange import deletion_monitor, upkeep
from agent.runtime import expiry

if __name__ == "__main__":
    deletion_monitor.LOOK_EVERY /= 10  # type: ignore[misc]
    upkeep.ASSERT_ALL /= 10  # type: ignore[misc]
    deletion_monitor.ASSERTED_WITHIN /= 100  # type: ignore[misc]
    deletion_monitor.ASSERTED_PER_SECOND *= 100  # type: ignore[misc]
    expiry.EVERY /= 10  # type: ignore[misc]
    main()
