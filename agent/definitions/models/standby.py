"""The section `standby`: the source that the downstream is kept in step with."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from agent.core.migration.objects import ObjectKind
from agent.core.migration.selection import ObjectChoice, VhostSelection
from agent.core.rules.patterns import Pattern
from agent.core.standby.settings import StandbySettings
from agent.definitions.document.findings import Spot
from agent.definitions.models import values
from agent.definitions.models.validation import StrictModel
from agent.definitions.models.values import MAY_BE_EMPTY, AlsoWritten, Name, Regexes, key

SHORTEST_AFTER: Final = 300
SHORTEST_KEEP: Final = 1_800
KEEP_MORE: Final = 1_200


class StandbyVhostModel(StrictModel):
    """What is kept in step in one vhost."""

    noun = "a vhost of the standby"

    exchanges: Regexes = Field(
        default=(".*",), description="A regular expression over names, unanchored, or a list of them; all by default."
    )
    queues: Regexes = Field(default=(".*",), description="The same of queues; all by default.")
    policies: Regexes = Field(default=(".*",), description="The same of policies; all by default.")

    def to_core(self, spot: Spot) -> VhostSelection:
        kinds = {
            ObjectKind.POLICY: ("policies", self.policies),
            ObjectKind.EXCHANGE: ("exchanges", self.exchanges),
            ObjectKind.QUEUE: ("queues", self.queues),
        }
        return VhostSelection(
            spot.place,
            {
                kind: [ObjectChoice(Pattern(each), spot.at(name).place) for each in patterns]
                for kind, (name, patterns) in kinds.items()
            },
        )


class TrimModel(StrictModel):
    """What is taken out of copies before the time of `keep` is over."""

    noun = "standby.trim"

    after: values.SecondsOrNever = Field(
        default=1800.0,
        description="Seconds, or a time such as `30m`, since the source consumed a message, after which its copy goes; "
        "`never` for none. 30 minutes by default.",
    )
    consumer_timeout: values.SecondsOrNever = key(
        "The `consumer_timeout` that the source's brokers have for all of these queues: with it, queues are trimmed, "
        "too, that are never seen empty, as their consumers always hold some messages. Unknown by default, which trims "
        "none of those."
    )


def _never(value: object) -> object:
    """YAML reads off as false."""
    return {"after": "never"} if value == "off" or value is False else value


_OR_OFF: Final = AlsoWritten(_never, {"enum": ["off", False]})


class StandbyModel(StrictModel):
    """Keeps the downstream in step with another cluster, to take over from it."""

    noun = "standby"

    of: Name = Field(
        description="The upstream of the source, in each of the vhosts or in `/` for all; it needs `management`. "
        "Mandatory."
    )
    vhosts: Annotated[
        dict[Name, Annotated[StandbyVhostModel, MAY_BE_EMPTY]], Field(min_length=1, max_length=values.MAX_PATTERNS)
    ] = Field(description="Vhosts, which have the same name at the source, and what of each; mandatory.")
    keep: values.SecondsOrNever = Field(
        default=3600.0,
        description="Seconds, or a time such as `1h`, for which messages stay, whether or not the source has consumed "
        "them; `never` drops none. An hour by default.",
    )
    trim: Annotated[TrimModel, _OR_OFF] = Field(
        default_factory=TrimModel,
        description="`off`, or what goes earlier than by `keep`: by default what the source consumed 30 minutes ago.",
    )

    def check(self, spot: Spot) -> None:
        """Why: docs/decisions/0068-standby-trim.md"""
        after, keep = self.trim.after, self.keep
        if after is not None and after < SHORTEST_AFTER:
            spot.error("trim.after: at least 5 minutes, as brokers' figures are late", "trim", "after")
        elif after is not None and keep is not None and keep < max(after, SHORTEST_KEEP) + KEEP_MORE:
            spot.warn(
                "keep: copies go by it before 'trim' takes them; write 20m more than 30m and 'after'",
                "keep",
            )

    def to_core(self, spot: Spot) -> StandbySettings:
        vhosts = {name: each.to_core(spot.at("vhosts", name)) for name, each in self.vhosts.items()}
        trim = self.trim
        return StandbySettings(self.of, vhosts, self.keep, trim.after, trim.consumer_timeout, spot.place)
