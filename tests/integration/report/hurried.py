"""The agent's command, for upstreams that collect their numbers each second as the lab's do: by default, every five."""

from agent.cli.main import main
from agent.core.links import upstream_account
from agent.runtime import upstream_counters

if __name__ == "__main__":
    upstream_account.QUIET_FOR /= 2.5  # type: ignore[misc]
    upstream_counters.SHORTEST /= 5  # type: ignore[misc]
    main()
