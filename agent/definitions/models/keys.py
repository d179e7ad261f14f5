"""What all models of the configuration share: strict types, no unknown keys, names as RabbitMQ spells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from agent.definitions.document.findings import Spot, suggest


def kebab(name: str) -> str:
    return name.replace("_", "-")


class Keys(BaseModel):
    """A mapping of the configuration; `noun` is its name in messages."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=kebab, hide_input_in_errors=True, defer_build=True
    )
    noun: ClassVar[str]

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        """Reports errors that involve several keys; gets the mapping as written, since other keys may be wrong."""

    @classmethod
    def about_unknown(cls, name: str) -> str:
        """Advice to add about an unknown key."""
        return suggest(name, (found.alias or known for known, found in cls.model_fields.items()))

    def written(self) -> dict[str, Any]:
        """The keys that were given, by the names of the core's model."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


class SnakeKeys(Keys):
    """RabbitMQ spells the keys of TLS options and message properties with underscores."""

    model_config = ConfigDict(alias_generator=None)
