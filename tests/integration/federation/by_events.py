"""The agent's command, where the downstream is polled each hour while its events are heard: what changes before that
was reported by an event, however slow the machine is."""

from agent.cli.main import main
from agent.downstream import watch

if __name__ == "__main__":
    watch.POLL_WITH_EVENTS = 3_600.0
    main()
