"""The whole document as one model: for its JSON Schema and reference. Reading goes entry by entry (`decode`)."""

from __future__ import annotations

from pydantic import Field

from agent.definitions.keys import Keys
from agent.definitions.local_models import BindingModel, ExchangeModel, PolicyModel
from agent.definitions.settings_model import AgentModel, DownstreamModel, SourcesModel
from agent.definitions.shovel_model import ShovelModel
from agent.definitions.upstream_model import SetMemberModel, UpstreamModel
from agent.definitions.value_types import Name, key


class SectionsModel(Keys):
    """What is defined in one vhost."""

    noun = "a vhost"

    upstreams: dict[Name, UpstreamModel] = key("Remote clusters, by name.")
    upstream_sets: dict[Name, list[SetMemberModel]] = key(
        "Lists of upstreams, by name; the set `all` always is every upstream of the vhost.",
        json_schema_extra={"propertyNames": {"not": {"const": "all"}}},
    )
    policies: dict[Name, PolicyModel] = key("Which exchanges and queues are federated, by name.")
    exchanges: dict[Name, ExchangeModel] = key(
        "Exchanges that the agent declares at start, by name.",
        json_schema_extra={"propertyNames": {"not": {"pattern": r"^amq\."}}},
    )
    bindings: dict[Name, list[BindingModel]] = key(
        "Bindings to ask upstreams for, by exchange, where no HTTP API can be read."
    )
    shovels: dict[Name, ShovelModel] = key("Shovels, by name.")


class DocumentModel(SectionsModel):
    """Configuration of federation-agent."""

    noun = "the file"

    agent: AgentModel = key("The agent itself.")
    downstream: DownstreamModel = Field(description="The cluster that the agent stands beside; mandatory.")
    definitions: SourcesModel = key("Where definitions come from besides this file.")
    vhosts: dict[Name, SectionsModel] = key("The same six sections for other vhosts; at the top they are for `/`.")
