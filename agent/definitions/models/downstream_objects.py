"""The downstream's own objects: policies, exchanges to declare, static bindings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema

from agent.core.model import ApplyTo, Binding, Choice, DeclaredExchange, Exchange, Federation, Policy
from agent.core.rules.policies import SET_ARGUMENTS
from agent.core.text import did_you_mean
from agent.definitions.document.findings import Spot
from agent.definitions.models.validation import StrictModel
from agent.definitions.models.values import AlsoWritten, Arguments, Name, Regex, ShortText, key, kind_of, refuse
from agent.errors import Place

SET_KEY = "upstream-set"
NO_FEDERATION = "no key of federation: what this policy matches isn't federated, unless by one of a higher priority"
FEDERATION_KEYS = tuple(choice.value for choice in Choice)


class PolicyDefinitionModel(StrictModel):
    """What a policy does: exactly one of these keys. One that has no key of federation federates nothing, and keeps
    policies of a lower priority from doing so."""

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
    def is_of_something_else(cls, raw: object) -> bool:
        """True if no key has to do with federation, not even a misspelt one."""
        return (
            isinstance(raw, dict)
            and bool(raw)
            and not any(str(name).startswith("federation") or did_you_mean(str(name), FEDERATION_KEYS) for name in raw)
        )

    @classmethod
    def about_unknown(cls, name: str) -> str:
        hint = super().about_unknown(name)
        return hint or "; the agent's policies only federate: set it with a policy on the broker as well"

    def to_core(self) -> Federation | None:
        for name, value in self.written().items():
            return Federation(Choice(name.replace("_", "-")), value)
        return None


def _not_streams(value: object) -> object:
    if value == "streams":
        raise refuse("streams are never federated; write queues or all, or remove the policy")
    return value


def _only_of_federation(value: object) -> object:
    return {} if PolicyDefinitionModel.is_of_something_else(value) else value


_OR_OF_SOMETHING_ELSE = AlsoWritten(
    _only_of_federation, {"type": "object", "minProperties": 1, "propertyNames": {"not": {"pattern": "^federation"}}}
)


class PolicyModel(StrictModel):
    """Federates the exchanges and queues whose names match."""

    noun = "a policy"

    pattern: Regex = Field(description="Regular expression over names, unanchored; mandatory.")
    apply_to: Annotated[
        Literal["exchanges", "queues", "classic_queues", "quorum_queues", "all"], BeforeValidator(_not_streams)
    ] = Field(
        default="all", description="`exchanges`, `queues`, `classic_queues`, `quorum_queues`, or `all`, the default."
    )
    priority: Annotated[float, Field(allow_inf_nan=False)] = Field(
        default=0, description="If several policies match, the one with the highest priority wins; 0 by default."
    )
    definition: Annotated[PolicyDefinitionModel, _OR_OF_SOMETHING_ELSE] = Field(
        description="What the policy does; mandatory."
    )

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        if PolicyDefinitionModel.is_of_something_else(raw.get("definition")):
            spot.warn(NO_FEDERATION, "definition", key=True)
        elif isinstance(raw.get("definition"), dict):
            PolicyDefinitionModel.rules(raw["definition"], spot.at("definition"))

    def to_core(self, name: str, place: Place) -> Policy:
        return Policy(name, self.pattern, ApplyTo(self.apply_to), self.priority, self.definition.to_core(), place)


ExchangeType = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": "^(direct|fanout|topic|headers|x-(?!federation(-upstream)?$).+)$"}),
]
_BUILT_IN = ("direct", "fanout", "topic", "headers")


def _type(value: str) -> str:
    if value in ("x-federation", "x-federation-upstream"):
        raise refuse("write the backing type (for example topic); the agent federates exchanges of any type")
    if value not in _BUILT_IN and not value.startswith("x-"):
        raise refuse(f"must be one of {', '.join(_BUILT_IN)}, or a plugin's type beginning with x-")
    return value


def sets_of(raw: Mapping[str, Any]) -> list[tuple[tuple[str, ...], object]]:
    """The places where an exchange names its upstream set, with the names: the key, or an argument as clients use. The
    first one counts."""
    found: list[tuple[tuple[str, ...], object]] = [((SET_KEY,), raw[SET_KEY])] if SET_KEY in raw else []
    arguments = raw.get("arguments")
    if isinstance(arguments, dict):
        found += [(("arguments", name), arguments[name]) for name in SET_ARGUMENTS if name in arguments]
    return found


class ExchangeModel(StrictModel):
    """An exchange that the agent declares at start."""

    noun = "an exchange"

    type: Annotated[ExchangeType, AfterValidator(_type)] = Field(
        description="`direct`, `fanout`, `topic`, `headers` or a plugin's `x-…`; mandatory."
    )
    durable: bool = Field(default=True, description="Whether it survives a restart of the broker; true by default.")
    auto_delete: bool = Field(
        default=False, description="Whether it is deleted with its last binding; false by default."
    )
    internal: bool = Field(default=False, description="Whether clients may not publish to it; false by default.")
    arguments: Arguments = Field(default=(), description="Further arguments, such as `alternate-exchange`.")
    upstream_set: Name = key("Federate it from the upstreams of this set, with no policy; `all` is every upstream.")

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        named = sets_of(raw)
        for path, value in named:
            if raw.get("internal") is True:
                spot.error("an internal exchange is never federated; drop internal or upstream-set", *path, key=True)
            if len(path) > 1 and not isinstance(value, str):
                spot.error(f"{'.'.join(path)}: expected text, got {kind_of(value)}", *path)
        known = [(path, value) for path, value in named if isinstance(value, str) and not spot.is_unresolved(*path)]
        for path, value in known[1:]:
            if value != known[0][1]:
                spot.error(
                    f"{'.'.join(path)}: not the same set as {'.'.join(known[0][0])} names; keep one of them", *path
                )

    def to_core(self, name: str, place: Place) -> DeclaredExchange:
        written = self.written()
        upstream_set = written.pop("upstream_set", None)
        return DeclaredExchange(Exchange(name, **written), place, upstream_set)


class BindingModel(StrictModel):
    """One binding to create upstream, if the broker's own can't be read."""

    noun = "a binding"
    model_config = ConfigDict(populate_by_name=False)

    routing_key: ShortText = Field(default="", alias="key", description="Routing key; empty by default.")
    arguments: Arguments = Field(default=(), description="Arguments, as for headers exchanges.")

    def to_core(self) -> Binding:
        return Binding(self.routing_key, self.arguments)
