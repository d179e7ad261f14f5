"""A broker of AMQP 1.0 that isn't RabbitMQ: Apache Qpid Proton with queues in memory, run by Debian's own Python.

It prints a line when it listens, and one of each link with its name and address. Whoever attaches to an address makes
its queue. It takes anonymous logins only, settles what a consumer has accepted, and gives the rest back to its queue.
Some addresses behave differently: one that begins with `closed` gives no credit, and one that begins with `picky`
releases every message at its first attempt.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from typing import Any

from proton import Delivery, Message  # type: ignore[import-not-found]
from proton.handlers import MessagingHandler  # type: ignore[import-not-found]
from proton.reactor import Container  # type: ignore[import-not-found]

CREDIT = 50


class Broker(MessagingHandler):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=True)
        self.queues: dict[str, deque[Message]] = defaultdict(deque)
        self.consumers: dict[str, list[Any]] = defaultdict(list)
        self.taken: dict[Any, dict[str, Message]] = defaultdict(dict)  # of a consumer: by tags, in their order
        self.seen: set[tuple[str, Any]] = set()

    def on_start(self, event: Any) -> None:
        port = int(sys.argv[1])
        self.acceptor = event.container.listen(f"127.0.0.1:{port}")
        print("listening", flush=True)  # noqa: T201 - what the lab waits for

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        address = (link.remote_source if link.is_sender else link.remote_target).address
        (link.source if link.is_sender else link.target).address = address
        print("consumer" if link.is_sender else "publisher", link.name, address, flush=True)  # noqa: T201
        if link.is_sender:
            self.consumers[address].append(link)

    def on_link_opened(self, event: Any) -> None:
        if event.link.is_receiver and not event.link.target.address.startswith("closed"):
            event.link.flow(CREDIT)

    def on_sendable(self, event: Any) -> None:
        self.serve(event.link.source.address)

    def serve(self, address: str) -> None:
        queue = self.queues[address]
        for link in self.consumers[address]:
            while queue and link.credit > 0:
                message = queue.popleft()
                self.taken[link][link.send(message).tag] = message

    def on_message(self, event: Any) -> None:
        address, message, link = event.link.target.address, event.message, event.link
        link.flow(1)
        known = address, message.id or bytes(message.body or b"")
        if address.startswith("picky") and known not in self.seen:
            self.seen.add(known)
            self.settle(event.delivery, Delivery.RELEASED)
            return
        self.queues[address].append(message)
        self.settle(event.delivery, Delivery.ACCEPTED)
        self.serve(address)

    def on_accepted(self, event: Any) -> None:
        self.taken[event.link].pop(event.delivery.tag, None)

    def on_released(self, event: Any) -> None:
        message = self.taken[event.link].pop(event.delivery.tag, None)
        if message is not None:
            self.give_back(event.link.source.address, [message])

    def on_modified(self, event: Any) -> None:
        self.on_released(event)

    def on_rejected(self, event: Any) -> None:
        self.on_accepted(event)

    def give_back(self, address: str, messages: list[Message]) -> None:
        for message in reversed(messages):
            message.delivery_count += 1
            self.queues[address].appendleft(message)
        self.serve(address)

    def on_link_closing(self, event: Any) -> None:
        self.forget(event.link)

    def on_session_closing(self, event: Any) -> None:
        self.forget_all(lambda link: link.session == event.session)

    def on_connection_closing(self, event: Any) -> None:
        self.forget_all(lambda link: link.connection == event.connection)

    def on_disconnected(self, event: Any) -> None:
        self.forget_all(lambda link: link.connection == event.connection)

    def forget_all(self, which: Any) -> None:
        for link in [link for links in self.consumers.values() for link in links if which(link)]:
            self.forget(link)

    def forget(self, link: Any) -> None:
        for address, links in self.consumers.items():
            if link in links:
                links.remove(link)
                self.give_back(address, list(self.taken.pop(link, {}).values()))
                return


Container(Broker()).run()
