"""Reads which links and shovels the broker's own plugins run."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.model import Definitions
from agent.downstream.reading import WHERE, NativeLink
from agent.errors import PermanentError, Place, Problem, Severity
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
            (answer["vhost"], str(answer.get("exchange") or answer.get("queue") or ""), answer["upstream"])
            for answer in answers or ()
        )
    )


@dataclass(frozen=True, slots=True)
class NativeShovels:
    """`listed` is None where the plugin isn't enabled, as far as it shows."""

    listed: frozenset[NativeLink] | None = None
    warnings: tuple[Problem, ...] = ()

    def of_plugin(self, parameters: Definitions) -> frozenset[NativeLink]:
        """What the plugin runs: all that parameters define, even where it hasn't begun with one yet."""
        if self.listed is None:
            return frozenset()
        return self.listed | {(vhost, name, "") for vhost, found in parameters.vhosts.items() for name in found.shovels}


async def read_native_shovels(client: ManagementClient) -> NativeShovels:
    try:
        answers = await client.shovels()
    except PermanentError as error:
        message = f"whether the shovel plugin runs shovels can't be seen: {error}"
        return NativeShovels(warnings=(Problem(Place(WHERE), message, Severity.WARNING),))
    if answers is None:
        return NativeShovels()
    return NativeShovels(frozenset((each["vhost"], each["name"], "") for each in answers if each.get("vhost")))
