"""The agent's command, where the times of a trim are a tenth: a figure is 6 s old at most, `after: 5m` is 30 s, and
`keep: 1h` 6 minutes. Brokers of tests count each second."""

from dataclasses import replace

from agent.cli.main import main
from agent.core.standby.settings import StandbySettings
from agent.core.standby.trim import TrimRule
from agent.migration import standby, trimming

FASTER = 10


def _hurried(settings: StandbySettings) -> TrimRule:
    rule = trimming.rule_of(settings)
    return replace(rule, after=rule.after / FASTER, keep=rule.keep / FASTER, late=rule.late / FASTER)


if __name__ == "__main__":
    standby.rule_of = _hurried  # type: ignore[attr-defined]
    standby.BETWEEN /= FASTER  # type: ignore[misc]
    main()
