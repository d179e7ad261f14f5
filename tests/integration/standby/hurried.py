"""The agent's commands where figures are awaited for shorter, as brokers of tests count each second. The times of a
trim are a twentieth: a figure is 3 s old at most, `after: 5m` is 15 s, and `keep: 5h` 15 minutes."""

from dataclasses import replace

from agent.cli.main import main
from agent.core.standby.settings import StandbySettings
from agent.core.standby.trim import TrimRule
from agent.migration import copying, standby, switching, trimming

FASTER = 20


def hurry(faster: int) -> None:
    """The times of a trim, and how often it looks."""

    def rule(settings: StandbySettings) -> TrimRule:
        found = trimming.rule_of(settings)
        return replace(found, after=found.after / faster, keep=found.keep / faster, late=found.late / faster)

    standby.rule_of = rule  # type: ignore[attr-defined]
    standby.BETWEEN = 1.0  # type: ignore[misc]


if __name__ == "__main__":
    hurry(FASTER)
    copying.BETWEEN = 2.0  # type: ignore[misc]
    switching.FIGURES_LATE, switching.QUIET_FOR = 4.0, 6.0  # type: ignore[misc]
    switching.TOGETHER = 1_000  # type: ignore[misc]
    main()
