"""The agent's command where the times of a trim are a tenth, for an hour in which brokers have much to do: a figure is
6 s old at most, and `after: 5m` is 30 s."""

from agent.cli.main import main
from tests.integration.standby.hurried import hurry

FASTER = 10

if __name__ == "__main__":
    hurry(FASTER)
    main()
