"""The requests that the agent sends to the HTTP API."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self, cast

from agent.core.addresses.http_url import HttpUrl
from agent.core.addresses.url_text import encode
from agent.errors import PermanentError
from agent.management import shapes
from agent.management.answers import (
    BindingAnswer,
    ConsumerAnswer,
    ExchangeAnswer,
    FederationLinkAnswer,
    NodeAnswer,
    Overview,
    ParameterAnswer,
    PermissionAnswer,
    PolicyAnswer,
    QueueAnswer,
    QueueCountsAnswer,
    ShovelAnswer,
    Tables,
    TopicPermissionAnswer,
    VhostAnswer,
    WhoamiAnswer,
)
from agent.management.shapes import Shape, ShapeError
from agent.management.transport import NOT_RABBITMQ, Contexts, Missing, Transport

DEFAULT_TIMEOUT = 30.0
_ANY_TAG = "the tag management, monitoring or policymaker"
_POLICYMAKER = "the tag policymaker or administrator"
_ADMINISTRATOR = "the tag administrator"
_MONITORING = "the tag monitoring or administrator"
_EXCHANGE_COLUMNS = "name,type,durable,auto_delete,internal,arguments,policy"
_QUEUE_COLUMNS = "name,type,state,durable,auto_delete,exclusive,arguments,policy,messages"
_QUEUE_COUNT_COLUMNS = "name,messages," + ",".join(
    f"message_stats.{name}" for name in ("publish", "ack", "deliver_no_ack", "get_no_ack")
)
_BINDING_COLUMNS = "source,destination,destination_type,routing_key,arguments"
_CONSUMER_COLUMNS = "queue.name,consumer_tag,arguments,channel_details.node"
# With statistics a queue's policy arrives seconds late, or never if they are off; without statistics, at once.
_NO_STATISTICS = "disable_stats=true&enable_queue_totals=true"


COMPONENTS: Final = ("federation-upstream", "federation-upstream-set", "shovel")


class NotFoundError(PermanentError):
    """The broker has no such vhost or route."""


class ManagementClient:
    """One cluster's HTTP API, which the agent reads, but for one thing that it deletes; `urls` are interchangeable.

    Use it with `async with`.
    """

    def __init__(
        self,
        urls: Sequence[HttpUrl],
        *,
        where: str = "downstream",
        setting: str = "downstream.management",
        timeout: float = DEFAULT_TIMEOUT,
        contexts: Contexts | None = None,
    ) -> None:
        self._where = where
        self._transport = Transport(urls, where=where, setting=setting, timeout=timeout, contexts=contexts)

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def overview(self) -> Overview:
        columns = "cluster_name,rabbitmq_version,product_name,product_version,disable_stats,rates_mode"
        return cast("Overview", await self._one(f"overview?columns={columns}", shapes.OVERVIEW))

    async def vhosts(self) -> list[VhostAnswer]:
        """The vhosts that the user can see."""
        return cast("list[VhostAnswer]", await self._list("vhosts?columns=name", shapes.VHOST, needs=_ANY_TAG))

    async def parameters(self) -> list[ParameterAnswer]:
        """The parameters of the vhosts that the user may access; others are omitted silently."""
        answer = await self._list("parameters", shapes.PARAMETER, needs=_POLICYMAKER)
        return cast("list[ParameterAnswer]", answer)

    async def parameters_of(self, vhost: str) -> list[ParameterAnswer]:
        """The parameters of the relevant components, for use if all of them are too many for one response."""
        found: list[ParameterAnswer] = []
        for component in COMPONENTS:
            path = f"parameters/{component}/{encode(vhost)}"
            try:
                answer = await self._list(path, shapes.PARAMETER, needs=_POLICYMAKER)
            except NotFoundError:  # some releases don't know a component without its plugin
                continue
            found += cast("list[ParameterAnswer]", answer)
        return found

    async def whoami(self) -> WhoamiAnswer:
        """The user that the API shows for the agent's login."""
        return cast("WhoamiAnswer", await self._one("whoami", shapes.WHOAMI))

    async def permissions_of(self, user: str) -> list[PermissionAnswer]:
        """The user's permissions in each vhost; empty if the broker's own database doesn't have the user."""
        path, shape = f"users/{encode(user)}/permissions", shapes.PERMISSION
        answer = await self._transport.get_list(path, needs=_ADMINISTRATOR, take=shape.take)
        return [] if isinstance(answer, Missing) else cast("list[PermissionAnswer]", answer)

    async def topic_permissions_of(self, user: str) -> list[TopicPermissionAnswer]:
        """The user's permissions for each topic exchange that has any; empty as above."""
        path, shape = f"users/{encode(user)}/topic-permissions", shapes.TOPIC_PERMISSION
        answer = await self._transport.get_list(path, needs=_ADMINISTRATOR, take=shape.take)
        return [] if isinstance(answer, Missing) else cast("list[TopicPermissionAnswer]", answer)

    async def operator_policies_of(self, vhost: str) -> list[PolicyAnswer]:
        answer = await self._list(f"operator-policies/{encode(vhost)}", shapes.POLICY, needs=_POLICYMAKER)
        return cast("list[PolicyAnswer]", answer)

    @property
    def date(self) -> str | None:
        """The broker's time in its last answer, as HTTP writes it."""
        return self._transport.date

    async def delete_shovel(self, vhost: str, name: str) -> None:
        """Deletes the parameter that defines a shovel; nothing happens where there is none."""
        needs = f"{_POLICYMAKER}, and permissions in vhost {vhost!r}"
        await self._transport.delete(f"parameters/shovel/{encode(vhost)}/{encode(name)}", needs=needs)

    async def shovels(self) -> list[ShovelAnswer] | None:
        """The shovels of the native plugin; None where rabbitmq_shovel_management isn't enabled."""
        shape = shapes.SHOVEL
        answer = await self._transport.get_list("shovels", needs=_MONITORING, take=shape.take)
        return None if isinstance(answer, Missing) else cast("list[ShovelAnswer]", answer)

    async def nodes(self) -> list[NodeAnswer]:
        """The cluster's nodes. The plugins and alarms of one that is down, or has no statistics yet, aren't known."""
        path = "nodes?columns=name,running,enabled_plugins,mem_alarm,disk_free_alarm"
        return cast("list[NodeAnswer]", await self._list(path, shapes.NODE, needs=_MONITORING))

    async def policies(self) -> list[PolicyAnswer]:
        """The policies of the vhosts that the user may access."""
        return cast("list[PolicyAnswer]", await self._list("policies", shapes.POLICY, needs=_POLICYMAKER))

    async def policies_of(self, vhost: str) -> list[PolicyAnswer]:
        answer = await self._list(f"policies/{encode(vhost)}", shapes.POLICY, needs=_POLICYMAKER)
        return cast("list[PolicyAnswer]", answer)

    async def global_parameter(self, name: str) -> Any | None:
        """A global parameter's value, None if it isn't set."""
        answer = await self._transport.get(f"global-parameters/{encode(name)}", needs=_POLICYMAKER)
        return answer.get("value") if isinstance(answer, dict) else None

    async def exchanges(self, vhost: str) -> list[ExchangeAnswer]:
        path = f"exchanges/{encode(vhost)}?columns={_EXCHANGE_COLUMNS}"
        return cast("list[ExchangeAnswer]", await self._of_vhost(vhost, path, shapes.EXCHANGE))

    async def queues(self, vhost: str) -> list[QueueAnswer]:
        path = f"queues/{encode(vhost)}?columns={_QUEUE_COLUMNS}&{_NO_STATISTICS}"
        return cast("list[QueueAnswer]", await self._of_vhost(vhost, path, shapes.QUEUE))

    async def queue_counts(self, vhost: str) -> list[QueueCountsAnswer]:
        """The counts of all queues of the vhost; see `overview` for whether the broker counts at all."""
        path = f"queues/{encode(vhost)}?columns={_QUEUE_COUNT_COLUMNS}"
        return cast("list[QueueCountsAnswer]", await self._of_vhost(vhost, path, shapes.QUEUE_COUNTS))

    async def bindings(self, vhost: str) -> list[BindingAnswer]:
        path = f"bindings/{encode(vhost)}?columns={_BINDING_COLUMNS}"
        return cast("list[BindingAnswer]", await self._of_vhost(vhost, path, shapes.BINDING))

    async def bindings_from(self, vhost: str, exchange: str) -> list[BindingAnswer]:
        """The bindings whose source is the exchange; also empty if it doesn't exist."""
        path = f"exchanges/{encode(vhost)}/{encode(exchange)}/bindings/source?columns={_BINDING_COLUMNS}"
        return cast("list[BindingAnswer]", await self._of_vhost(vhost, path, shapes.BINDING))

    async def consumers(self, vhost: str) -> list[ConsumerAnswer]:
        """All consumers of the vhost's queues; brokers list them some seconds late."""
        path = f"consumers/{encode(vhost)}?columns={_CONSUMER_COLUMNS}"
        return cast("list[ConsumerAnswer]", await self._of_vhost(vhost, path, shapes.CONSUMER))

    async def federation_links(self) -> list[FederationLinkAnswer] | None:
        """The links of the native plugin; None if rabbitmq_federation_management isn't enabled."""
        shape = shapes.FEDERATION_LINK
        answer = await self._transport.get_list("federation-links", needs=_MONITORING, take=shape.take)
        return None if isinstance(answer, Missing) else cast("list[FederationLinkAnswer]", answer)

    async def _of_vhost(self, vhost: str, path: str, shape: Shape) -> Tables:
        return await self._list(path, shape, needs=f"permissions in vhost {vhost!r}", missing=f"vhost {vhost!r}")

    async def _list(self, path: str, shape: Shape, *, needs: str, missing: str = "the HTTP API's route") -> Tables:
        answer = await self._transport.get_list(path, needs=needs, take=shape.take)
        if isinstance(answer, Missing):
            raise NotFoundError(f"{self._where}: {missing} does not exist, or the user may not see it")
        return answer

    async def _one(self, path: str, shape: Shape) -> dict[str, Any]:
        answer = await self._transport.get(path, needs=_ANY_TAG)
        try:
            return shape.take(answer if isinstance(answer, dict) else {})
        except ShapeError as error:
            route = path.partition("?")[0]
            message = f"{self._where}: GET /api/{route}: the response {error}: {NOT_RABBITMQ}"
            raise PermanentError(message) from error
