"""A link of each kind."""

from __future__ import annotations

from agent.core.addresses.uri import parse
from agent.core.model import (
    Exchange,
    ExchangeLink,
    LinkSettings,
    Queue,
    QueueLink,
    QueueSource,
    Shovel,
    ShovelLink,
    ShovelSource,
)
from agent.errors import Place

BROKER = "amqp://h:5672"


def exchange_link(
    remote_name: str = "x", settings: LinkSettings | None = None, problem: str | None = None
) -> ExchangeLink:
    return ExchangeLink(
        id="00000000",
        vhost="/",
        name="x",
        upstream="origin",
        uris=(parse(BROKER),),
        remote_name=remote_name,
        settings=settings or LinkSettings(),
        policy="p",
        exchange=Exchange("x", "topic"),
        problem=problem,
    )


def queue_link() -> QueueLink:
    return QueueLink(
        id="00000001",
        vhost="/",
        name="x",
        upstream="origin",
        uris=(parse(BROKER),),
        remote_name="x",
        settings=LinkSettings(),
        policy="p",
        queue=Queue("x"),
    )


def shovel_link(source: ShovelSource | None = None) -> ShovelLink:
    uris = (parse(BROKER),)
    shovel = Shovel("s", uris, uris, Place("agent.yaml"), source or QueueSource("q"))
    return ShovelLink(id="00000002", vhost="/", name="s", uris=uris, shovel=shovel)
