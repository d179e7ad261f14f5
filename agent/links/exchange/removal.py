"""The end of a link that is gone for good: what it has built upstream goes too."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.wire.ends import ConnectionClosedError
from agent.core.links import backoff
from agent.core.links.reconcile import upstream_queue_name
from agent.core.model import ExchangeLink, QueueType
from agent.core.rules import names
from agent.errors import BrokerError, PermanentError
from agent.links.brokers import Brokers
from agent.links.ends import End
from agent.links.errors import InDoubtError, KeptError
from agent.links.exchange import upstream_objects
from agent.links.exchange.canary import Canary

PATIENCE: Final = 30.0
NOT_IMPLEMENTED: Final = 540
LOOKS: Final = 20  # whether definitions that are read just now are read
BETWEEN_LOOKS: Final = 0.1


class Removal:
    """Of what one link has built under the downstream's name `cluster`; without `messages` only where none wait.

    `stands_otherwise`: the queue has other arguments than are defined, and so may be of another type.
    """

    def __init__(
        self, link: ExchangeLink, brokers: Brokers, *, cluster: str, messages: bool, stands_otherwise: bool = False
    ) -> None:
        self._link = link
        self._brokers = brokers
        self._cluster = cluster
        self._messages = messages
        self._is_quorum = link.settings.queue_type is QueueType.QUORUM
        self._may_cost_connection = self._is_quorum or stands_otherwise

    @property
    def _upstream(self) -> End:
        return self._brokers.federation_ends(self._link).source

    async def run(self, still: Callable[[], bool]) -> BrokerError | None:
        """Tries for a while, as long as it is `still` to be done; answers why something is left to the operator.

        KeptError: nothing is removed now, since messages have come, or the link may be defined again.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        attempt = 1
        while still() and (error := await self._try(deadline, still)) is not None:
            if not still():
                return None
            attempt += 1
            delay = backoff.delay(attempt, self._link.settings.reconnect_delay, random.random())
            if isinstance(error, PermanentError) or loop.time() + delay > deadline:
                return error
            await asyncio.sleep(delay)
        return None

    async def _try(self, deadline: float, still: Callable[[], bool]) -> BrokerError | None:
        try:
            async with asyncio.timeout_at(deadline):
                async with await self._brokers.control(self._upstream) as up:
                    queue = upstream_queue_name(self._link, up.connection.vhost, self._cluster)
                    if not names.are_too_long(queue):  # or nothing was ever built
                        await self._demolish(up.connection, queue, still)
                        await Canary(up.connection, self._link.remote_name, queue).remove()
        except BrokerError as error:
            # A queue of another type than is defined now: brokers close the connection over a conditional deletion.
            cause = error.__cause__ or error
            if isinstance(cause, ConnectionClosedError) and cause.code == NOT_IMPLEMENTED:
                self._is_quorum = self._may_cost_connection = True
            return error
        except TimeoutError:
            return InDoubtError(f"upstream {self._link.upstream}: no answer in {PATIENCE:g} s")
        return None

    async def _demolish(self, up: Connection, queue: str, still: Callable[[], bool]) -> None:
        if self._may_cost_connection:
            async with await self._brokers.trial(self._upstream, up.uri) as spare:
                await self._delete(spare, queue, still)
        else:
            await self._delete(up, queue, still)
        for letter in names.LETTERS:
            await upstream_objects.delete_exchange(up, names.internal_exchange(queue, letter))

    async def _delete(self, up: Connection, queue: str, still: Callable[[], bool]) -> None:
        # Connecting may have taken long, and by now the link may be wanted again.
        looks = LOOKS
        while self._brokers.holds_removals(self._link) and looks:
            looks -= 1
            await asyncio.sleep(BETWEEN_LOOKS)
        if not looks or not still():
            raise KeptError(f"{up.where}: queue {queue!r} is kept: the link may be defined again")
        # A queue with another consumer is kept: it is used by something else now.
        await upstream_objects.delete_queue(up, queue, if_empty=not self._messages, is_quorum=self._is_quorum)
