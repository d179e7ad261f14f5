"""The commands `migrate` where figures are awaited for shorter, as brokers of tests count each second: the looks of
`status` are 4 s apart, and `copy --follow` looks each second."""

from agent.cli.main import main
from agent.migration import copying, observing

APART = 4.0

if __name__ == "__main__":
    whole = observing.verdict_on
    observing.verdict_on = lambda *arguments, **_: whole(*arguments, apart=APART)
    copying.BETWEEN = 1.0  # type: ignore[misc]
    main()
