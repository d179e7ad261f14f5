"""The rule with one of its safeguards taken out of its source text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from agent.core.standby import copy_positions, source_proof, trim
from agent.core.standby.trim import StandbyTrim

_PARTS: Final = (source_proof, copy_positions, trim)
_CLASSES: Final = ("SourceProof", "CopyPositions")


@dataclass(frozen=True, slots=True)
class Safeguard:
    """The `text` of a module that is one, and what is there `instead`."""

    name: str
    part: ModuleType
    text: str
    instead: str


def without(safeguard: Safeguard) -> type[StandbyTrim]:
    """The class without it. A text that isn't there once is an error: the safeguard was renamed, or is gone."""
    classes: dict[str, object] = {}
    for part in _PARTS:
        assert part.__file__ is not None
        text = Path(part.__file__).read_text("utf-8")
        if part is safeguard.part:
            assert text.count(safeguard.text) == 1, safeguard.name
            text = text.replace(safeguard.text, safeguard.instead)
        changed = ModuleType(part.__name__)
        exec(compile(text, part.__file__, "exec"), changed.__dict__)
        for name in _CLASSES:
            if name in classes:
                setattr(changed, name, classes[name])
            elif name in vars(changed):
                classes[name] = vars(changed)[name]
    made = vars(changed)["StandbyTrim"]
    assert isinstance(made, type)
    return made


SAFEGUARDS: Final = (
    Safeguard("a proof is late", source_proof, "each.at - self._late for each", "each.at for each"),
    Safeguard("redeliveries", source_proof, " or first.at - self._late < self._calm_since", ""),
    Safeguard("the timeout is waited for", source_proof, "- self._late - self._timeout", "- self._late"),
    Safeguard("by late figures", source_proof, "- self._late - self._timeout", "- self._timeout + self._late"),
    Safeguard("there is a timeout", trim, "timeout=rule.timeout", "timeout=300.0"),
    Safeguard("what stands still", source_proof, "not second.is_empty and delivered", "False and delivered"),
    Safeguard("nothing waits", source_proof, "and seen.messages == held and", "and"),
    Safeguard("redeliveries are seen late", source_proof, "_last_by(now - self._late)", "_last_by(now)"),
    Safeguard("restarts", source_proof, "self.identity == earlier.identity and all(", "all("),
    Safeguard("restarts, and counters that fall", source_proof, " or not seen.continues(last)", ""),
    Safeguard("the source settles", source_proof, "if now < self._since + self._late:", "if False:"),
    Safeguard("the link may be faster", trim, "gone - self._rule.late", "gone"),
    Safeguard("what entered is seen late", copy_positions, "look = self._last_by(time)", "look = self._now"),
    Safeguard("what entered by then", copy_positions, "look = self._last_by(time)", "look = self._last_by(time + 120)"),
    Safeguard("depth before entries", copy_positions, "self._last_by(self._now.at - self._late)", "self._now"),
    Safeguard("what was taken", copy_positions, "self._taken - self._taken_before(depth)", "0"),
    Safeguard("is removed late", copy_positions, "depth.at - 2 * self._late", "depth.at"),
    Safeguard("copy restarts", copy_positions, " or seen.identity != self._identity or seen.entered < last.entered", ""),
    Safeguard("copy restarts, by name", copy_positions, " or seen.identity != self._identity", ""),
    Safeguard("the copy settles", copy_positions, "if now < self._since + self._late:", "if False:"),
    Safeguard("positions of before", trim, "if not (is_same_copy and is_same_source):", "if not is_same_source:"),
    Safeguard("proofs of before", trim, "if not (is_same_copy and is_same_source):", "if not is_same_copy:"),
    Safeguard("known at", copy_positions, "0.0 if depth is None else depth.at - self._late", "1e9"),
)
