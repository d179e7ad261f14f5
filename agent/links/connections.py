"""The connections that one link holds while it runs; it shares them with others.

Why: docs/decisions/0018-control-connection.md
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from agent.amqp.connection_pool import Shared
from agent.core.addresses.uri import AmqpUri
from agent.links.brokers import Brokers
from agent.links.ends import End
from agent.tasks import gather_both

OnBlocked = Callable[[str | None], None]


class Connections:
    """The connections of one link. `ask` comes first, then `flow`, or its two halves; `leave` gives back what `detach`
    returns, however far the link came.

    `on_blocked` is called with the reason why the destination takes no messages, and with None once it does.
    """

    def __init__(self, brokers: Brokers, on_blocked: OnBlocked) -> None:
        self.down: Shared | None = None
        self._brokers = brokers
        self._on_blocked = on_blocked
        self._up: Shared | None = None
        self._held: list[Shared] = []
        self._stop_listening: Callable[[], None] | None = None

    async def ask(self, end: End) -> Shared:
        """Get a connection for requests to the broker at one end."""
        return self._hold(await self._brokers.control(end))

    async def flow(
        self,
        source: End,
        uri: AmqpUri,
        destination: End,
        *,
        destination_uri: AmqpUri | None = None,
        dedicated: str | None = None,
        source_dedicated: str | None = None,
    ) -> tuple[Shared, Shared]:
        """Get the connections that messages come from and go to, opened concurrently; see `Brokers` for the arguments.

        While a destination takes nothing, nothing is read for it. So links share the connection that they read from
        only if their messages go to the same `destination_uri`.
        """
        return await gather_both(
            self.from_source(source, uri, dedicated=dedicated or source_dedicated or destination_uri),
            self.to_destination(destination, destination_uri, dedicated=dedicated),
        )

    async def from_source(self, source: End, uri: AmqpUri, *, dedicated: Hashable = None) -> Shared:
        up = self._up = self._hold(await self._brokers.source(source, uri, dedicated=dedicated))
        return up

    async def to_destination(self, end: End, uri: AmqpUri | None = None, *, dedicated: str | None = None) -> Shared:
        down = self.down = self._hold(await self._brokers.destination(end, uri, dedicated=dedicated))
        self._stop_listening = down.connection.listen_blocked(self._on_blocked)
        return down

    def _hold(self, shared: Shared) -> Shared:
        self._held.append(shared)
        return shared

    def hold(self) -> None:
        """Take no more messages; those that come are counted."""
        if self._up is not None:
            self._up.connection.wire.inbound.hold(self, counts=True)

    def go_on(self) -> None:
        if self._up is not None:
            self._up.connection.wire.inbound.release(self)

    def detach(self) -> tuple[Shared, ...]:
        """Stop listening for alarms, and hold back no messages any more; return what is to be given to `leave`."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        self.go_on()
        held, self._held, self._up, self.down = tuple(self._held), [], None, None
        return held

    async def leave(self, held: tuple[Shared, ...]) -> None:
        for shared in held:
            await shared.release()
