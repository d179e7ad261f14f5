"""The rule with one of its safeguards taken out of its source text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Final

from agent.core.standby import trim
from agent.core.standby.trim import StandbyTrim
from tests.unit.core.standby.model import LATE_STEPS, Life


@dataclass(frozen=True, slots=True)
class Safeguard:
    """The `text` of the module that is one, what is there `instead`, and a life in which that is missed."""

    name: str
    text: str
    instead: str
    life: Life


def without(safeguard: Safeguard) -> type[StandbyTrim]:
    """The class without it. A text that isn't there once is an error: the safeguard was renamed, or is gone."""
    assert trim.__file__ is not None
    text = Path(trim.__file__).read_text("utf-8")
    assert text.count(safeguard.text) == 1, safeguard.name
    changed = ModuleType(trim.__name__)
    exec(compile(text.replace(safeguard.text, safeguard.instead), trim.__file__, "exec"), changed.__dict__)
    made = vars(changed)["StandbyTrim"]
    assert isinstance(made, type)
    return made


SPARSE: Final = Life(
    most_published=1, pause=0.8, lag=0, late=LATE_STEPS, taking=0, look_every=1, consumers=2, prefetch=200, work=1
)
HELD: Final = replace(SPARSE, pause=0.9, holds=1.0)
"""Nothing is ever acknowledged, so nothing may be trimmed."""
HELD_OFTEN: Final = replace(SPARSE, holds=0.2)
STOPS: Final = replace(SPARSE, pause=0.0, burst=13, consumers=1, dies=0.05, absent=120)
BURSTS: Final = replace(STOPS, most_published=3, burst=30, dies=0.03)
SOURCE_RESTARTS: Final = replace(STOPS, source_restart=0.03, work=12)
COPY_RESTARTS: Final = replace(STOPS, copy_restart=0.04)

SAFEGUARDS: Final = (
    Safeguard("a proof is late", "each.at - self._late for each", "each.at for each",
        replace(STOPS, slow_source=LATE_STEPS)),
    Safeguard("the link may be faster", "gone - self._rule.late", "gone", replace(STOPS, slow_source=LATE_STEPS)),
    Safeguard("nothing waits", "and seen.messages == held and", "and", STOPS),
    Safeguard("redeliveries", " or first.at - self._late < self._calm_since", "", HELD),
    Safeguard("the timeout is waited for", "- self._late - self._timeout", "- self._late", HELD_OFTEN),
    Safeguard("there is a timeout", "timeout=rule.timeout", "timeout=300.0", replace(HELD, times_out=False)),
    Safeguard("the source restarts", " or not seen.continues(last)", "", SOURCE_RESTARTS),
    Safeguard("what had entered then", "look = self._last_by(time)", "look = self._now", STOPS),
    Safeguard("and not later", "look = self._last_by(time)", "look = self._last_by(time + 180)", STOPS),
    Safeguard("what was taken", "self._taken - self._taken_before(depth)", "0", BURSTS),
    Safeguard("positions of before", "if not (is_same_copy and is_same_source):", "if not is_same_source:",
        COPY_RESTARTS),
    Safeguard("what is held is looked at again", "0.0 if depth is None else depth.at - self._late",
        "1e9", replace(BURSTS, expiration=0.5)),
)  # fmt: skip
