"""Alarms of the brokers that links connect: brokers report them over AMQP only to who publishes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agent.check import core_alarms as alarms
from agent.check.connections import Endpoint
from agent.check.context import Scene
from agent.check.findings import Finding
from agent.check.http_api import Api
from agent.links.ends import DOWNSTREAM


async def judge_alarms(scene: Scene) -> AsyncIterator[Finding]:
    """Of each broker whose HTTP API may be asked, and which may not. That of the downstream is reported already."""
    for api in scene.apis.all:
        nodes = await api.alarms()
        if nodes is not None:
            links_to, links_from = _links(scene, api)
            for found in alarms.judge_alarms(api.where, nodes, links_to=links_to, links_from=links_from):
                yield found
    silent = [each for each in scene.opened if each.where != DOWNSTREAM and scene.apis.of(each) is None]
    shown = (shown.where for shown in map(scene.shown, silent) if shown is not None)
    for found in alarms.unseen_alarms(list(dict.fromkeys(shown))):
        yield found


def _links(scene: Scene, api: Api) -> tuple[list[str], list[str]]:
    """Those that publish to its broker, and those that take messages from it."""

    def is_its(endpoint: Endpoint) -> bool:
        return scene.apis.of(endpoint) is api

    to = [each.label for each in scene.links if is_its(each.destination)]
    return to, [each.label for each in scene.links if is_its(each.source)]


async def alarm_of(api: Api) -> alarms.Alarm | None:
    """As its HTTP API shows it now; None where there is none, or none can be seen."""
    api.forget()
    return next(iter(alarms.alarms_of(await api.alarms() or ())), None)
