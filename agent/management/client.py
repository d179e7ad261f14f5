"""The requests that the agent sends to the HTTP API."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, TypeVar

from agent.core.addresses.url_text import encode
from agent.errors import PermanentError
from agent.management.answers import (
    ApiUser,
    BindingAnswer,
    ClientAnswer,
    ConnectionAnswer,
    ConsumerAnswer,
    ExchangeAnswer,
    FederationLinkAnswer,
    GlobalParameterAnswer,
    NodeAnswer,
    Overview,
    ParameterAnswer,
    PermissionAnswer,
    PolicyAnswer,
    QueueAnswer,
    QueueContentsAnswer,
    QueueCountsAnswer,
    QueueFiguresAnswer,
    ShapeError,
    ShovelAnswer,
    TopicPermissionAnswer,
    VhostAnswer,
    WhoamiAnswer,
    taking,
)
from agent.management.transport import NOT_RABBITMQ, Transport

T = TypeVar("T")
_ANY_TAG = "the tag management, monitoring or policymaker"
_POLICYMAKER = "the tag policymaker or administrator"
_ADMINISTRATOR = "the tag administrator"
_MONITORING = "the tag monitoring or administrator"
_QUEUE_COUNT_COLUMNS = "name,messages," + ",".join(
    f"message_stats.{name}" for name in ("publish", "ack", "deliver_no_ack", "get_no_ack")
)
_QUEUE_FIGURE_COLUMNS = "name,state,node,leader,messages,messages_unacknowledged,consumers," + ",".join(
    f"message_stats.{name}" for name in ("publish", "deliver_get", "redeliver", "ack", "deliver_no_ack", "get_no_ack")
)
_CONSUMER_COLUMNS = "queue.name,consumer_tag,arguments,channel_details.node"
_HOLDER_COLUMNS = "queue.name,consumer_tag,channel_details.peer_host,channel_details.user"
# With statistics a queue's policy arrives seconds late, or never if they are off; without statistics, at once.
_NO_STATISTICS = "&disable_stats=true&enable_queue_totals=true"


COMPONENTS: Final = ("federation-upstream", "federation-upstream-set", "shovel")


class NotFoundError(PermanentError):
    """The broker has no such vhost or route."""


def _columns(answer: type[object]) -> str:
    return f"columns={','.join(answer.__annotations__)}"


class ManagementClient(Transport):
    """One cluster's HTTP API, which the agent reads, but for one thing that it deletes; `urls` are interchangeable.

    Use it with `async with`.
    """

    async def overview(self) -> Overview:
        return await self._one(f"overview?{_columns(Overview)}", Overview)

    async def vhosts(self) -> list[VhostAnswer]:
        """The vhosts that the user can see."""
        return await self._list(f"vhosts?{_columns(VhostAnswer)}", VhostAnswer, needs=_ANY_TAG)

    async def parameters(self) -> list[ParameterAnswer]:
        """The parameters of the vhosts that the user may access; others are omitted silently."""
        return await self._list("parameters", ParameterAnswer, needs=_POLICYMAKER)

    async def parameters_of(self, vhost: str) -> list[ParameterAnswer]:
        """The parameters of the relevant components, for use if all of them are too many for one response."""
        found: list[ParameterAnswer] = []
        for component in COMPONENTS:
            path = f"parameters/{component}/{encode(vhost)}"
            # Some releases don't know a component without its plugin.
            found += await self._list_or_none(path, ParameterAnswer, needs=_POLICYMAKER) or []
        return found

    async def whoami(self) -> ApiUser:
        """The user that the API shows for the agent's login."""
        found = await self._one("whoami", WhoamiAnswer)
        tags = found.get("tags")
        words = tags.split(",") if isinstance(tags, str) else tags if isinstance(tags, list) else []
        return ApiUser(found["name"], frozenset(str(each).strip() for each in words))

    async def permissions_of(self, user: str) -> list[PermissionAnswer]:
        """The user's permissions in each vhost; empty if the broker's own database doesn't have the user."""
        return await self._permissions("users", user) or []

    async def half_made_vhosts(self, vhosts: Collection[str]) -> set[str]:
        """Those of these empty vhosts that no user of the broker's own database has permissions in. A broker gives them
        last, to the user who makes a vhost, and not at all where the connection ended before: so 3.10 and 4.3. None
        where it isn't known, as another backend may have the users, or where this user couldn't get any.
        """
        if not vhosts:
            return set()
        try:
            who = await self.whoami()
            if not who.is_administrator or (own := await self._permissions("users", who.name)) is None:
                return set()
            doubtful = set(vhosts) - {each["vhost"] for each in own}
            return {vhost for vhost in sorted(doubtful) if await self._permissions("vhosts", vhost) == []}
        except PermanentError:
            return set()

    async def _permissions(self, of: str, name: str) -> list[PermissionAnswer] | None:
        path = f"{of}/{encode(name)}/permissions"
        return await self._list_or_none(path, PermissionAnswer, needs=_ADMINISTRATOR)

    async def topic_permissions_of(self, user: str) -> list[TopicPermissionAnswer]:
        """The user's permissions for each topic exchange that has any; empty as above."""
        path = f"users/{encode(user)}/topic-permissions"
        return await self._list_or_none(path, TopicPermissionAnswer, needs=_ADMINISTRATOR) or []

    async def operator_policies_of(self, vhost: str) -> list[PolicyAnswer]:
        return await self._list(f"operator-policies/{encode(vhost)}", PolicyAnswer, needs=_POLICYMAKER)

    async def delete_shovel(self, vhost: str, name: str) -> None:
        """Deletes the parameter that defines a shovel; nothing happens where there is none."""
        needs = f"{_POLICYMAKER}, and permissions in vhost {vhost!r}"
        await self.delete(f"parameters/shovel/{encode(vhost)}/{encode(name)}", needs=needs)

    async def shovels(self) -> list[ShovelAnswer] | None:
        """The shovels of the native plugin; None where rabbitmq_shovel_management isn't enabled."""
        return await self._list_or_none("shovels", ShovelAnswer, needs=_MONITORING)

    async def nodes(self) -> list[NodeAnswer]:
        """The cluster's nodes. The plugins and alarms of one that is down, or has no statistics yet, aren't known."""
        return await self._list(f"nodes?{_columns(NodeAnswer)}", NodeAnswer, needs=_MONITORING)

    async def policies(self) -> list[PolicyAnswer]:
        """The policies of the vhosts that the user may access."""
        return await self._list("policies", PolicyAnswer, needs=_POLICYMAKER)

    async def policies_of(self, vhost: str) -> list[PolicyAnswer]:
        return await self._list(f"policies/{encode(vhost)}", PolicyAnswer, needs=_POLICYMAKER)

    async def global_parameter(self, name: str) -> Any | None:
        """A global parameter's value, None if it isn't set."""
        answer = await self.get(f"global-parameters/{encode(name)}", needs=_POLICYMAKER)
        return answer.get("value") if isinstance(answer, dict) else None

    async def global_parameters(self) -> list[GlobalParameterAnswer]:
        return await self._list("global-parameters", GlobalParameterAnswer, needs=_POLICYMAKER)

    async def permissions(self) -> list[PermissionAnswer]:
        """Those of all users that the broker's own database has, in all vhosts."""
        return await self._list("permissions", PermissionAnswer, needs=_ADMINISTRATOR)

    async def exchanges(self, vhost: str) -> list[ExchangeAnswer]:
        return await self._of_vhost(vhost, "exchanges/{}", ExchangeAnswer)

    async def queues(self, vhost: str) -> list[QueueAnswer]:
        return await self._of_vhost(vhost, "queues/{}", QueueAnswer, more=_NO_STATISTICS)

    async def queue_counts(self, vhost: str) -> list[QueueCountsAnswer]:
        """The counts of all queues of the vhost; see `overview` for whether the broker counts at all."""
        return await self._of_vhost(vhost, "queues/{}", QueueCountsAnswer, _QUEUE_COUNT_COLUMNS)

    async def queue_figures(self, vhost: str) -> list[QueueFiguresAnswer]:
        return await self._of_vhost(vhost, "queues/{}", QueueFiguresAnswer, _QUEUE_FIGURE_COLUMNS)

    async def queue_depths(self, vhost: str) -> dict[str, int | None]:
        """The messages of each queue, ready and unacknowledged; None where the broker doesn't show it. Seconds old."""
        answers = await self._of_vhost(vhost, "queues/{}", QueueCountsAnswer, "name,messages")
        found = {each["name"]: each.get("messages") for each in answers}
        return {name: depth if isinstance(depth, int) else None for name, depth in found.items()}

    async def queue_contents(self, vhost: str) -> list[QueueContentsAnswer]:
        """The contents of each queue of the vhost, as far as they are known; seconds old."""
        return await self._of_vhost(vhost, "queues/{}", QueueContentsAnswer, more=_NO_STATISTICS)

    async def bindings(self, vhost: str) -> list[BindingAnswer]:
        return await self._of_vhost(vhost, "bindings/{}", BindingAnswer)

    async def bindings_from(self, vhost: str, exchange: str) -> list[BindingAnswer]:
        """The bindings whose source is the exchange; also empty if it doesn't exist."""
        return await self._of_vhost(vhost, f"exchanges/{{}}/{encode(exchange)}/bindings/source", BindingAnswer)

    async def consumers(self, vhost: str) -> list[ConsumerAnswer]:
        """All consumers of the vhost's queues; brokers list them some seconds late."""
        return await self._of_vhost(vhost, "consumers/{}", ConsumerAnswer, _CONSUMER_COLUMNS)

    async def holders(self, vhost: str) -> list[ConsumerAnswer]:
        """All consumers of the vhost's queues, with their hosts and users."""
        return await self._of_vhost(vhost, "consumers/{}", ConsumerAnswer, _HOLDER_COLUMNS)

    async def connections(self, vhost: str) -> list[ConnectionAnswer]:
        """The connections to the vhost; only its own where the user has not the tag monitoring."""
        return await self._of_vhost(vhost, "vhosts/{}/connections", ConnectionAnswer)

    async def clients(self, vhost: str) -> list[ClientAnswer]:
        """The same, with who they are."""
        return await self._of_vhost(vhost, "vhosts/{}/connections", ClientAnswer)

    async def all_clients(self) -> list[ClientAnswer]:
        """All connections, of each protocol; only its own where the user has not the tag monitoring."""
        return await self._list(f"connections?{_columns(ClientAnswer)}", ClientAnswer, needs=_MONITORING)

    async def federation_links(self) -> list[FederationLinkAnswer] | None:
        """The links of the native plugin; None if rabbitmq_federation_management isn't enabled."""
        return await self._list_or_none("federation-links", FederationLinkAnswer, needs=_MONITORING)

    async def _of_vhost(self, vhost: str, route: str, answer: type[T], columns: str = "", *, more: str = "") -> list[T]:
        """`route` has braces in place of the vhost; without `columns` they are those of the answer."""
        asked = f"columns={columns}" if columns else _columns(answer)
        path = f"{route.format(encode(vhost))}?{asked}{more}"
        return await self._list(path, answer, needs=f"permissions in vhost {vhost!r}", missing=f"vhost {vhost!r}")

    async def _list(self, path: str, answer: type[T], *, needs: str, missing: str = "the HTTP API's route") -> list[T]:
        found = await self._list_or_none(path, answer, needs=needs)
        if found is None:
            raise NotFoundError(f"{missing} does not exist, or the user may not see it", where=self._where)
        return found

    async def _list_or_none(self, path: str, answer: type[T], *, needs: str) -> list[T] | None:
        return await self.get_list(path, needs=needs, take=taking(answer))

    async def _one(self, path: str, answer: type[T]) -> T:
        return self._taken(path, await self.get(path, needs=_ANY_TAG), answer)

    def _taken(self, path: str, found: object, answer: type[T]) -> T:
        try:
            return taking(answer)(found if isinstance(found, dict) else {})
        except ShapeError as error:
            route = path.partition("?")[0]
            what = f"GET /api/{route}: the response {error}: {NOT_RABBITMQ}"
            raise PermanentError(what, where=self._where) from error
