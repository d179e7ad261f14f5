"""The migration file: two clusters, what of them moves, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from agent.core.migration.objects import ObjectKind
from agent.core.migration.selection import MovedBy, ObjectChoice, VhostSelection
from agent.core.rules.patterns import Pattern
from agent.definitions.document.findings import Spot
from agent.definitions.models import values
from agent.definitions.models.clusters import DownstreamModel
from agent.definitions.models.validation import StrictModel
from agent.definitions.models.values import MAY_BE_EMPTY, AlsoWritten, Name, Regex, Regexes, key

_ALL: Final = ".*"


class MigrationEndModel(DownstreamModel):
    """A cluster that definitions and messages move from, or to."""

    noun = "a cluster"
    no_path: ClassVar[str] = "vhosts are those of the file"

    management: values.HttpUrls = Field(description="URL of its HTTP API, or a list; mandatory.")


class QueueChoiceModel(StrictModel):
    """Queues that a pattern matches."""

    noun = "a choice of queues"

    how: Literal["shovel", "queue-link"] = Field(
        default="shovel",
        description="`shovel`, the default, moves what is there and what comes; `queue-link` follows consumers.",
    )
    convert: Literal["quorum"] = key("`quorum`: mirrored classic queues become quorum queues.")


def _how(value: object) -> object:
    return {} if value is None else {"how": value} if isinstance(value, str) else value


_OR_ONLY_HOW: Final = AlsoWritten(_how, {"anyOf": [{"enum": ["shovel", "queue-link"]}, {"type": "null"}]})


class VhostSelectionModel(StrictModel):
    """What moves of one vhost."""

    noun = "a vhost"

    queues: Annotated[
        dict[Regex, Annotated[QueueChoiceModel, _OR_ONLY_HOW]], Field(max_length=values.MAX_PATTERNS), MAY_BE_EMPTY
    ] = key("Regular expressions over names, unanchored, each with how its queues move; all by shovels by default.")
    exchanges: Regexes = Field(default=(_ALL,), description="A regular expression, or a list of them; all by default.")
    policies: Regexes = Field(
        default=(_ALL,), description="A regular expression over names of policies, or a list; all by default."
    )

    def to_core(self, spot: Spot) -> VhostSelection:
        queues = self.queues if "queues" in self.model_fields_set else {_ALL: QueueChoiceModel()}
        chosen = [
            ObjectChoice(Pattern(pattern), spot.at("queues", pattern).place, MovedBy(each.how), bool(each.convert))
            for pattern, each in queues.items()
        ]
        return VhostSelection(
            spot.place,
            {
                ObjectKind.QUEUE: chosen,
                ObjectKind.EXCHANGE: _all_of(self.exchanges, spot.at("exchanges")),
                ObjectKind.POLICY: _all_of(self.policies, spot.at("policies")),
            },
        )


def _all_of(patterns: tuple[str, ...], spot: Spot) -> list[ObjectChoice]:
    return [ObjectChoice(Pattern(each), spot.place) for each in patterns]


class MigrationModel(StrictModel):
    """A move of queues and exchanges from one cluster to another."""

    noun = "the file"

    source: MigrationEndModel = Field(description="The cluster to move from, of which nothing is deleted; mandatory.")
    target: MigrationEndModel = Field(description="The cluster to move to; mandatory.")
    vhosts: Annotated[
        dict[Name, Annotated[VhostSelectionModel, MAY_BE_EMPTY]], Field(min_length=1, max_length=values.MAX_PATTERNS)
    ] = Field(description="Vhosts, which have the same name at the target, and what moves of each; mandatory.")

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        for name in ("source", "target"):
            if isinstance(raw.get(name), dict):
                MigrationEndModel.rules(raw[name], spot.at(name))
