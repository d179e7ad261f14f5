"""The questions that the agent asks the HTTP API."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, cast

from agent.core.http_url import HttpUrl
from agent.core.url_text import encode
from agent.errors import PermanentError
from agent.management.answers import (
    BindingAnswer,
    ExchangeAnswer,
    FederationLinkAnswer,
    Overview,
    ParameterAnswer,
    PolicyAnswer,
    QueueAnswer,
    Tables,
    VhostAnswer,
    WhoAmI,
)
from agent.management.transport import MISSING, NOT_RABBITMQ, Transport

DEFAULT_TIMEOUT = 30.0
_ANY_TAG = "the tag management, monitoring or policymaker"
_POLICYMAKER = "the tag policymaker or administrator"
_MONITORING = "the tag monitoring or administrator"
_EXCHANGE_COLUMNS = "name,type,durable,auto_delete,internal,arguments,policy"
_QUEUE_COLUMNS = "name,type,state,durable,auto_delete,exclusive,arguments,policy,messages"
_BINDING_COLUMNS = "source,destination,destination_type,routing_key,arguments"
# With statistics a queue's policy is told seconds late and not at all where they are off; without, at once.
_NO_STATISTICS = "disable_stats=true&enable_queue_totals=true"


class ManagementClient:
    """Reads one cluster's HTTP API; `urls` are interchangeable. Use it with `async with`."""

    def __init__(
        self,
        urls: Sequence[HttpUrl],
        *,
        where: str = "downstream",
        setting: str = "downstream.management",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        self._where = where
        self._transport = Transport(urls, where=where, setting=setting, timeout=timeout)

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def overview(self) -> Overview:
        columns = "cluster_name,rabbitmq_version,product_name,product_version"
        answer = await self._transport.get(f"overview?columns={columns}", needs=_ANY_TAG)
        if not isinstance(answer, dict) or "rabbitmq_version" not in answer:
            raise PermanentError(f"{self._where}: {NOT_RABBITMQ}")
        return cast("Overview", answer)

    async def whoami(self) -> WhoAmI:
        return cast("WhoAmI", await self._transport.get("whoami", needs=_ANY_TAG))

    async def vhosts(self) -> list[VhostAnswer]:
        """The vhosts that the user may see."""
        return cast("list[VhostAnswer]", await self._list("vhosts?columns=name", needs=_ANY_TAG))

    async def parameters(self) -> list[ParameterAnswer]:
        """The parameters of the vhosts that the user may access: no others, and no word about them."""
        return cast("list[ParameterAnswer]", await self._list("parameters", needs=_POLICYMAKER))

    async def policies(self) -> list[PolicyAnswer]:
        """The policies of the vhosts that the user may access."""
        return cast("list[PolicyAnswer]", await self._list("policies", needs=_POLICYMAKER))

    async def global_parameter(self, name: str) -> Any | None:
        """A global parameter's value, None where it isn't set."""
        answer = await self._transport.get(f"global-parameters/{encode(name)}", needs=_POLICYMAKER)
        return answer.get("value") if isinstance(answer, dict) else None

    async def exchanges(self, vhost: str) -> list[ExchangeAnswer]:
        path = f"exchanges/{encode(vhost)}?columns={_EXCHANGE_COLUMNS}"
        return cast("list[ExchangeAnswer]", await self._of_vhost(vhost, path))

    async def queues(self, vhost: str) -> list[QueueAnswer]:
        path = f"queues/{encode(vhost)}?columns={_QUEUE_COLUMNS}&{_NO_STATISTICS}"
        return cast("list[QueueAnswer]", await self._of_vhost(vhost, path))

    async def bindings(self, vhost: str) -> list[BindingAnswer]:
        path = f"bindings/{encode(vhost)}?columns={_BINDING_COLUMNS}"
        return cast("list[BindingAnswer]", await self._of_vhost(vhost, path))

    async def bindings_from(self, vhost: str, exchange: str) -> list[BindingAnswer]:
        """The bindings whose source is the exchange; empty, too, where it doesn't exist."""
        path = f"exchanges/{encode(vhost)}/{encode(exchange)}/bindings/source?columns={_BINDING_COLUMNS}"
        return cast("list[BindingAnswer]", await self._of_vhost(vhost, path))

    async def federation_links(self) -> list[FederationLinkAnswer] | None:
        """The links of the native plugin; None where rabbitmq_federation_management isn't enabled."""
        answer = await self._transport.get("federation-links", needs=_MONITORING)
        return None if answer is MISSING else cast("list[FederationLinkAnswer]", self._tables(answer))

    async def _of_vhost(self, vhost: str, path: str) -> Tables:
        return await self._list(path, needs=f"permissions in vhost {vhost!r}", missing=f"vhost {vhost!r}")

    async def _list(self, path: str, *, needs: str, missing: str = "the HTTP API's route") -> Tables:
        answer = await self._transport.get(path, needs=needs)
        if answer is MISSING:
            raise PermanentError(f"{self._where}: {missing} does not exist, or the user may not see it")
        return self._tables(answer)

    def _tables(self, answer: Any) -> Tables:
        if not isinstance(answer, list) or not all(isinstance(item, dict) for item in answer):
            raise PermanentError(f"{self._where}: {NOT_RABBITMQ}")
        return answer
