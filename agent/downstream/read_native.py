"""Reads the links and shovels that the broker's own plugins run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from agent.core.model import Definitions, LinkKind, NativeLink
from agent.downstream.reading import WHERE
from agent.errors import PermanentError, Place, Problem, Severity
from agent.management.answers import NodeAnswer
from agent.management.client import ManagementClient


@dataclass(frozen=True, slots=True)
class NativeLinks:
    links: frozenset[NativeLink] = frozenset()
    warnings: tuple[Problem, ...] = ()


async def read_native_links(client: ManagementClient) -> NativeLinks:
    """The plugin's links; without the permission there is only a warning, since the upstream queue's consumers show
    them too."""
    try:
        answers = await client.federation_links()
    except PermanentError as error:
        message = f"the federation plugin's links can't be read: {error}"
        return NativeLinks(warnings=(Problem(Place(WHERE), message, Severity.WARNING),))
    return NativeLinks(
        frozenset(
            (LinkKind(answer["type"]), answer["vhost"], answer.get(answer["type"], ""), answer["upstream"])
            for answer in answers or ()
        )
    )


SHOVEL_PLUGIN: Final = "rabbitmq_shovel"


@dataclass(frozen=True, slots=True)
class NativeShovels:
    """`listed` is None where the plugin isn't enabled, as far as its route shows."""

    listed: frozenset[NativeLink] | None = None
    warnings: tuple[Problem, ...] = ()

    def of_plugin(self, parameters: Definitions) -> frozenset[NativeLink]:
        """The shovels that the plugin runs: those that are listed, and all that parameters define, even where it hasn't
        begun with one yet. Empty if the plugin isn't enabled."""
        if self.listed is None:
            return frozenset()
        return self.listed | _defined_by(parameters)


async def read_native_shovels(client: ManagementClient) -> NativeShovels:
    try:
        answers = await client.shovels()
    except PermanentError as error:
        message = f"whether the shovel plugin runs shovels can't be seen: {error}"
        return NativeShovels(warnings=(Problem(Place(WHERE), message, Severity.WARNING),))
    if answers is None:
        return NativeShovels()
    return NativeShovels(
        frozenset((LinkKind.SHOVEL, each["vhost"], each["name"], "") for each in answers if each.get("vhost"))
    )


async def look_for_plugin(
    client: ManagementClient, shovels: NativeShovels, parameters: Definitions, *, has_statistics: bool
) -> NativeShovels:
    """Shovels after a look for the plugin where its route is missing: it may be enabled without the route, which the
    nodes' statistics show. If a running node may have it, `listed` is empty, so that what parameters define counts as
    run by it; a node whose plugins are not known yet may have it."""
    if shovels.listed is not None or shovels.warnings or not _defined_by(parameters):
        return shovels
    try:
        nodes = await client.nodes()
    except PermanentError as error:
        return NativeShovels(warnings=(_unseen(f"the plugins of the nodes can't be read: {error}"),))
    if not has_statistics:
        return NativeShovels(warnings=(_unseen("the broker's statistics, which show a node's plugins, are disabled"),))
    may_run = any(SHOVEL_PLUGIN in _plugins(node) for node in nodes if node.get("running"))
    return NativeShovels(frozenset()) if may_run else shovels


def _plugins(node: NodeAnswer) -> Collection[str]:
    found = node.get("enabled_plugins")
    return found if isinstance(found, list) else (SHOVEL_PLUGIN,)


def _unseen(reason: str) -> Problem:
    message = (
        "whether the shovel plugin runs the shovels that parameters define can't be seen, so the agent runs them: "
        f"rabbitmq_shovel_management isn't enabled, and {reason}"
    )
    return Problem(Place(WHERE), message, Severity.WARNING)


def _defined_by(parameters: Definitions) -> frozenset[NativeLink]:
    return frozenset(
        (LinkKind.SHOVEL, vhost, name, "") for vhost, found in parameters.vhosts.items() for name in found.shovels
    )
