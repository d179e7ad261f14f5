"""What concerns the downstream's own objects: policies, exchanges to declare, static bindings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, Strict, WithJsonSchema

from agent.core.model import ApplyTo, Binding, Choice, DeclaredExchange, Federation, Policy
from agent.definitions.findings import Spot
from agent.definitions.keys import Keys
from agent.definitions.value_types import Arguments, Name, Regex, ShortText, key, refuse
from agent.errors import Place

FEDERATION_KEYS = tuple(choice.value for choice in Choice)


class PolicyDefinitionModel(Keys):
    """What a policy does: exactly one of these keys."""

    noun = "a policy's definition"
    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    federation_upstream: Name = key("Federate from this one upstream.")
    federation_upstream_set: Name = key("Federate from the upstreams of this set; `all` is every upstream.")
    federation_upstream_pattern: Regex = key("Federate from the upstreams whose names match this regular expression.")

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        found = [name for name in FEDERATION_KEYS if name in raw]
        if len(found) != 1:
            spot.error(f"a policy's definition takes exactly one of {', '.join(FEDERATION_KEYS)}", key=True)

    @classmethod
    def about_unknown(cls, name: str) -> str:
        hint = super().about_unknown(name)
        return hint or "; the agent's policies only federate: set it by a policy on the broker, which goes along"

    def to_core(self) -> Federation:
        (name, value), *_ = self.written().items()
        return Federation(Choice(name.replace("_", "-")), value)


class PolicyModel(Keys):
    """Federates the exchanges and queues whose names match."""

    noun = "a policy"

    pattern: Regex = Field(description="Regular expression over names, unanchored; mandatory.")
    apply_to: Annotated[ApplyTo, Strict(False)] = Field(
        default=ApplyTo.ALL,
        description="`exchanges`, `queues`, `classic_queues`, `quorum_queues`, or `all`, the default.",
    )
    priority: Annotated[float, Field(allow_inf_nan=False)] = Field(
        default=0, description="Of several policies that match, the one of highest priority wins; 0 by default."
    )
    definition: PolicyDefinitionModel = Field(description="What the policy does; mandatory.")

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        if isinstance(raw.get("definition"), dict):
            PolicyDefinitionModel.rules(raw["definition"], spot.at("definition"))

    def to_core(self, name: str, place: Place) -> Policy:
        return Policy(name, self.pattern, self.apply_to, self.priority, self.definition.to_core(), place)


ExchangeType = Annotated[str, WithJsonSchema({"type": "string", "pattern": "^(direct|fanout|topic|headers|x-.+)$"})]
_BUILT_IN = ("direct", "fanout", "topic", "headers")


def _type(value: str) -> str:
    if value in ("x-federation", "x-federation-upstream"):
        raise refuse("write the backing type (topic, say); the agent federates exchanges of any type")
    if value not in _BUILT_IN and not value.startswith("x-"):
        raise refuse(f"must be one of {', '.join(_BUILT_IN)}, or a plugin's type beginning with x-")
    return value


class ExchangeModel(Keys):
    """An exchange that the agent declares at start."""

    noun = "an exchange"

    type: Annotated[ExchangeType, AfterValidator(_type)] = Field(
        description="`direct`, `fanout`, `topic`, `headers` or a plugin's `x-…`; mandatory."
    )
    durable: bool = Field(default=True, description="Whether it survives a restart of the broker; true by default.")
    auto_delete: bool = Field(default=False, description="Whether it goes with its last binding; false by default.")
    internal: bool = Field(default=False, description="Whether clients may not publish to it; false by default.")
    arguments: Arguments = Field(default=(), description="Further arguments, such as `alternate-exchange`.")
    upstream_set: Name = key("Federate it from the upstreams of this set, with no policy; `all` is every upstream.")

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        if raw.get("internal") is True and "upstream-set" in raw:
            spot.error(
                "an internal exchange is never federated; drop internal or upstream-set", "upstream-set", key=True
            )

    def to_core(self, name: str, place: Place) -> DeclaredExchange:
        return DeclaredExchange(name=name, place=place, **self.written())


class BindingModel(Keys):
    """One binding to ask the upstreams for, where the broker's own can't be read."""

    noun = "a binding"
    model_config = ConfigDict(populate_by_name=False)

    routing_key: ShortText = Field(default="", alias="key", description="Routing key; empty by default.")
    arguments: Arguments = Field(default=(), description="Arguments, as headers exchanges have them.")

    def to_core(self) -> Binding:
        return Binding(self.routing_key, self.arguments)
