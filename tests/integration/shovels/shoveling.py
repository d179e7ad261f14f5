"""What tests of shovels share: definitions, and what the agent shows of them."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any, Final

from tests.integration.federation.running import Agent, Named
from tests.integration.federation.sites import Site
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.waiting import DEADLINE, eventually

SHOVEL: Final = "drain"

ProxyTo = Callable[[Node | int], Proxy]


def shovel(source: Site, destination: Site, **keys: Any) -> dict[str, Any]:
    """A definition; keys with underscores. From queue `src` to queue `dest` where nothing else is given."""
    written = {key.replace("_", "-"): value for key, value in keys.items()}
    if not {"src-queue", "src-exchange"} & written.keys():
        written["src-queue"] = "src"
    if not {"dest-queue", "dest-exchange", "dest-exchange-key"} & written.keys():
        written["dest-queue"] = "dest"
    return {"src-uri": source.uri, "dest-uri": destination.uri} | written


def shovels(definition: dict[str, Any], name: str = SHOVEL) -> dict[str, Any]:
    """The section of a vhost."""
    return {"shovels": {name: definition}}


def named(site: Site, name: str = SHOVEL) -> Named:
    """As `Agent.links` names it: a shovel has no upstream."""
    return site.vhost, name, ""


def running(agent: Agent, site: Site, definition: dict[str, Any]) -> Agent:
    """The agent with this one shovel, once messages flow."""
    agent.write({site.vhost: shovels(definition)}).start()
    agent.wait_for("running", named(site))
    return agent


def ask(agent: Agent, path: str, method: str = "GET") -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{agent.port}{path}", method=method)
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def links_of(agent: Agent) -> dict[str, dict[str, Any]]:
    """All shovels as the API shows them, by name."""
    return {str(each["name"]): each for each in ask(agent, "/api/links") if each["kind"] == "shovel"}


def error_of(agent: Agent, site: Site, name: str = SHOVEL) -> str:
    return str(agent.links().get(named(site, name), {}).get("error") or "")


def wait_error(agent: Agent, site: Site, *parts: str, name: str = SHOVEL) -> None:
    """Until the shovel waits, and says all of this."""
    eventually(lambda: all(part in error_of(agent, site, name) for part in parts), what=f"the error has {parts}")


def parameter(site: Site, definition: dict[str, Any], name: str = SHOVEL) -> None:
    """Defines a shovel as operators of the plugin do."""
    site.node.admin.parameter("shovel", site.vhost, name, definition)


def parameters(site: Site) -> list[str]:
    """The shovels that parameters define."""
    found = site.node.admin.get("parameters")
    return [each["name"] for each in found if each["component"] == "shovel" and each["vhost"] == site.vhost]
