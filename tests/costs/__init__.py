"""What the agent costs, counted instead of timed, so that a price shows when it is paid and not a round later."""
