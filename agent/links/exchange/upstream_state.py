"""The record of what exists upstream for one exchange link, from one session to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.amqp.failures import one_line
from agent.core.fields import EMPTY, Table
from agent.core.links.upstream_steps import Known
from agent.core.rules.bindings import GroupedBinding
from agent.core.rules.hops import Site
from agent.links.exchange.binder import LeftOut


@dataclass
class UpstreamState:
    """The record of what exists upstream for a link; without a letter it isn't known what is bound.

    It holds for one cluster: endpoints that may be used for one another may be several.
    """

    site: Site | None = None
    queue: str = ""
    letter: str | None = None
    bound: frozenset[GroupedBinding] = frozenset()
    arguments: Table = EMPTY  # that the definition asked for
    note: str = ""
    left_out: tuple[LeftOut, ...] = ()
    has_canary: bool = False
    canary_note: str = ""  # why there is none
    restored: str = ""  # that the upstream exchange was missing
    restored_at: float = 0.0
    may_have_rival: bool = False  # whoever served the link until now may still be building
    doubtful: list[GroupedBinding] = field(default_factory=list)
    """Groups to bind once more: nothing would have shown a deletion when they were bound, or another agent may have
    replaced what they were bound to since a former session."""

    @property
    def known(self) -> Known | None:
        if self.letter is None or self.site is None:
            return None
        return Known(
            self.site,
            self.queue,
            self.letter,
            self.arguments,
            self.bound,
            has_canary=self.has_canary,
            left_out=frozenset(each.group for each in self.left_out),
            canary_is_refused=bool(self.canary_note) and not self.has_canary,
        )

    @property
    def notes(self) -> str:
        """The text for operators about what was built; empty if all is as defined."""
        notes = self.note, self.canary_note, self.restored, _of_left_out(self.left_out)
        return "; ".join(note for note in notes if note)


def _of_left_out(left_out: tuple[LeftOut, ...]) -> str:
    if not left_out:
        return ""
    first, others = left_out[0], len(left_out) - 1
    more = f", nor can {others} more" if others else ""
    return f"the binding with key {one_line(first.group.routing_key)!r} can't be made upstream{more}: {first.why}"
