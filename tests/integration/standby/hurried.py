"""The agent's commands where figures are awaited for shorter, as brokers of tests count each second. The times of a
trim are a twentieth: a figure is 3 s old at most, `after: 5m` is 15 s, and `keep: 5h` 15 minutes."""

from dataclasses import replace

from agent.cli.main import main
from agent.core.standby.settings import StandbySettings
from agent.core.standby.trim import TrimRule
from agent.migration import copying, standby, switching, trimming

FASTER = 20


def _hurried(settings: StandbySettings) -> TrimRule:
    rule = trimming.rule_of(settings)
    return replace(rule, after=rule.after / FASTER, keep=rule.keep / FASTER, late=rule.late / FASTER)


if __name__ == "__main__":
    standby.rule_of = _hurried  # type: ignore[attr-defined]
    standby.BETWEEN = 1.0  # type: ignore[misc]
    copying.BETWEEN = 2.0  # type: ignore[misc]
    switching.FIGURES_LATE, switching.QUIET_FOR = 4.0, 6.0  # type: ignore[misc]
    switching.TOGETHER = 1_000  # type: ignore[misc]
    main()
