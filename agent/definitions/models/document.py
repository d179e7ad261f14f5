"""The whole document as one model, for its JSON Schema and reference. It is read entry by entry (`decode`)."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from agent.definitions.models.downstream import DownstreamModel
from agent.definitions.models.keys import Keys
from agent.definitions.models.local import BindingModel, ExchangeModel, PolicyModel
from agent.definitions.models.settings import AgentModel, SourcesModel
from agent.definitions.models.shovel import ShovelModel
from agent.definitions.models.upstream import SetMemberModel, UpstreamModel
from agent.definitions.models.value_types import MAY_BE_EMPTY, Name, key


class SectionsModel(Keys):
    """The definitions of one vhost."""

    noun = "a vhost"

    upstreams: Annotated[dict[Name, UpstreamModel], MAY_BE_EMPTY] = key("Remote clusters, by name.")
    upstream_sets: Annotated[dict[Name, list[SetMemberModel]], MAY_BE_EMPTY] = key(
        "Lists of upstreams, by name; the set `all` is always every upstream of the vhost.",
        json_schema_extra={"propertyNames": {"not": {"const": "all"}}},
    )
    policies: Annotated[dict[Name, PolicyModel], MAY_BE_EMPTY] = key(
        "Which exchanges and queues are federated, by name."
    )
    exchanges: Annotated[dict[Name, ExchangeModel], MAY_BE_EMPTY] = key(
        "Exchanges that the agent declares at start, by name.",
        json_schema_extra={"propertyNames": {"not": {"pattern": r"^amq\."}}},
    )
    bindings: Annotated[dict[Name, list[BindingModel]], MAY_BE_EMPTY] = key(
        "Bindings to create upstream, by exchange, if no HTTP API can be read."
    )
    shovels: Annotated[dict[Name, ShovelModel], MAY_BE_EMPTY] = key("Shovels, by name.")


class DocumentModel(SectionsModel):
    """Configuration of federation-agent."""

    noun = "the file"
    model_config = ConfigDict(json_schema_extra={"patternProperties": {"^x-": {}}})  # they hold YAML anchors

    agent: Annotated[AgentModel, MAY_BE_EMPTY] = key("The agent itself.")
    downstream: DownstreamModel = Field(description="The cluster that the agent runs beside; mandatory.")
    definitions: Annotated[SourcesModel, MAY_BE_EMPTY] = key("Sources of definitions besides this file.")
    vhosts: Annotated[dict[Name, Annotated[SectionsModel, MAY_BE_EMPTY]], MAY_BE_EMPTY] = key(
        "The same six sections for other vhosts; at the top level they are for `/`."
    )
