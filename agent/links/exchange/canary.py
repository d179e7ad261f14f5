"""An exchange that goes with the upstream exchange: over AMQP a re-created exchange looks like the former one."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.amqp.connect import Connection
from agent.amqp.failures import NOT_FOUND, PRECONDITION_FAILED, one_line
from agent.amqp.questions import attempt, refusal
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.core.rules import names
from agent.links.exchange.upstream_objects import delete_exchange

_FALLBACK = "bindings are bound again every 25 s instead, to notice that the upstream exchange was deleted"


@dataclass
class Canary:
    """Of one link: an auto-delete exchange whose only binding leads to the upstream exchange.

    When the upstream exchange is deleted, the binding goes, and the canary with it; re-creating the exchange doesn't
    bring it back. Nothing is published to it, so nothing reaches the upstream exchange that way.
    """

    connection: Connection
    exchange: str
    queue: str
    name: str | None = field(init=False)
    note: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.name = names.canary(self.exchange, self.queue, self.connection.vhost)

    @property
    def is_needless(self) -> bool:
        """Nobody can delete the upstream exchange."""
        return names.is_permanent(self.exchange)

    async def place(self) -> bool:
        """Whether a deletion of the upstream exchange shows from now on; `note` says why not.

        Raises where the upstream exchange is missing.
        """
        self.note = ""
        if self.is_needless:
            return False
        if self.name is None:
            self.note = (
                f"the name of vhost {self.connection.vhost!r} is too long for the exchange that notices deletions: "
                f"{_FALLBACK}"
            )
            return False
        refused = await self._declare_and_bind(self.name)
        if refused is None:
            return True
        if refused.code == NOT_FOUND:
            raise refusal(self.connection, f"binding exchange {self.name!r} to {self.exchange!r}", refused)
        self.note = (
            f"{one_line(str(refused))}: {_FALLBACK}. Permissions that help: configure and read on "
            f"'^{names.AGENT_PREFIX}', write on {self.exchange!r}; then restart the link"
        )
        return False

    async def survived(self) -> bool:
        """Whether the upstream exchange was not deleted since `place`; a canary that lost its binding goes.

        After a broker's restart a look isn't enough: a durable canary outlives an exchange that isn't durable, and a
        canary may exist unbound. The broker refuses to delete it only where it is bound.
        """
        if self.name is None:
            return False
        values = {"exchange": self.name, "if_unused": True}
        found = await attempt(self.connection, methods.EXCHANGE_DELETE, methods.EXCHANGE_DELETE_OK, **values)
        return isinstance(found, ChannelClosedError) and found.code == PRECONDITION_FAILED

    async def remove(self) -> None:
        if self.name is not None:
            await delete_exchange(self.connection, self.name)

    async def _declare_and_bind(self, name: str) -> ChannelClosedError | None:
        """Both are asked at once, on a channel of their own, which a refusal closes."""
        channel = self.connection.wire.begin_channel()
        attributes = {"type": "fanout", "durable": True, "auto_delete": True, "internal": True}
        declared = channel.ask(methods.EXCHANGE_DECLARE, methods.EXCHANGE_DECLARE_OK, exchange=name, **attributes)
        binding = {"destination": self.exchange, "source": name}
        bound = channel.ask(methods.EXCHANGE_BIND, methods.EXCHANGE_BIND_OK, **binding)
        try:
            await declared
            await bound
        except ChannelClosedError as error:
            if declared.exception() is None:
                await delete_exchange(self.connection, name)  # without a binding it would stay for good
            return error
        finally:
            channel.leave()
        return None
