"""The migration file: two clusters, what of them moves, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from agent.core.addresses import http_url, uri
from agent.core.addresses.http_url import HttpUrl
from agent.core.addresses.uri import AmqpUri
from agent.core.addresses.url_text import Tls
from agent.core.migration.selection import MovedBy, PlacedPattern, QueueChoice, VhostSelection
from agent.core.rules.patterns import Pattern
from agent.definitions.document.findings import Spot
from agent.definitions.models import values
from agent.definitions.models.clusters import SslOptionsModel, secured
from agent.definitions.models.validation import StrictModel
from agent.definitions.models.values import MAY_BE_EMPTY, AlsoWritten, Name, Regex, Regexes, key, readable

_ALL: Final = ".*"


@dataclass(frozen=True, slots=True)
class MigrationEnd:
    """One of the two clusters; its representation shows no address."""

    uris: tuple[AmqpUri, ...] = field(repr=False)
    management: tuple[HttpUrl, ...] = field(repr=False)


class MigrationEndModel(StrictModel):
    """A cluster that definitions and messages move from, or to."""

    noun = "a cluster"

    uri: values.AmqpUris = Field(
        description="AMQP URI of the cluster, or a list of interchangeable ones; mandatory. Messages move by it."
    )
    management: values.HttpUrls = Field(description="URL of its HTTP API, or a list; mandatory.")
    ssl_options: Annotated[SslOptionsModel, MAY_BE_EMPTY] = key(
        "TLS settings for `amqps` and `https` above; an address that has some of its own uses those instead."
    )

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        if any(each.is_downstream_itself for each in readable(raw.get("uri"), uri.parse)):
            spot.error("uri: it needs a host", "uri")
        for url in readable(raw.get("management"), http_url.parse):
            for warning in url.warnings:
                spot.warn(f"management: {warning}", "management")

    def to_core(self) -> MigrationEnd:
        tls = self.ssl_options.to_core() if "ssl_options" in self.model_fields_set else Tls()
        return MigrationEnd(secured(self.uri, tls), secured(self.management, tls))


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
        return VhostSelection(
            spot.place,
            tuple(
                QueueChoice(
                    PlacedPattern(Pattern(pattern), spot.at("queues", pattern).place),
                    MovedBy(each.how),
                    "convert" in each.model_fields_set,
                )
                for pattern, each in queues.items()
            ),
            _placed(self.exchanges, spot.at("exchanges")),
            _placed(self.policies, spot.at("policies")),
        )


def _placed(patterns: tuple[str, ...], spot: Spot) -> tuple[PlacedPattern, ...]:
    return tuple(PlacedPattern(Pattern(each), spot.place) for each in patterns)


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
