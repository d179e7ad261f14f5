"""The native plugin without its management extension, and what is left of it: shovels that parameters define."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Final
from urllib.parse import quote

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import SHOVEL, ask, named, parameter, parameters, shovel, shovels
from tests.lab.node import DEFAULT_PLUGINS
from tests.lab.user_program import depth, numbered, times
from tests.lab.waiting import eventually

TOKEN: Final = "t0ken"
PLUGIN: Final = "rabbitmq_shovel"


def delete(agent: Agent, site: Site, name: str = SHOVEL, token: str | None = None) -> tuple[int, str]:
    """The status and the error."""
    url = f"http://127.0.0.1:{agent.port}/api/shovels/vhost/{quote(site.vhost, safe='')}/{name}"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="DELETE", headers=headers), timeout=20) as found:
            return found.status, ""
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["error"]


@pytest.mark.thorough
def test_the_agent_stands_aside_and_takes_over_and_a_shovel_is_deleted_over_http(
    agent_of: AgentOf, borrowed: Borrowed, there: Site
) -> None:
    node = borrowed(plugins=(*DEFAULT_PLUGINS, PLUGIN))
    here = Site(node, "/")
    parameter(here, shovel(there, here))
    agent = agent_of(node)
    http = {"listen": f"127.0.0.1:{agent.port}", "token": TOKEN}
    written = {here.vhost: shovels(shovel(there, here, src_queue="src2", dest_queue="dest2"), "of-file")}
    agent.write(written, definitions={"management": True}, agent={"http": http}).start()
    agent.wait_for("standby", named(here))
    agent.wait_for("running", named(here, "of-file"))
    assert "shovel plugin" in agent.links()[named(here)]["error"]
    assert "running" not in agent.history(here.vhost, SHOVEL, "")
    there.publish(numbered(100), "src", exchange="")
    assert times(here.take(100, queue="dest")) == dict.fromkeys(numbered(100), 1)

    node.run("rabbitmq-plugins", "disable", PLUGIN)
    agent.wait_for("running", named(here))
    there.publish(numbered(100), "src", exchange="")
    assert times(here.take(100, queue="dest")) == dict.fromkeys(numbered(100), 1)

    assert delete(agent, here)[0] == 401
    assert delete(agent, here, "other", TOKEN)[0] == 404
    status, error = delete(agent, here, "of-file", TOKEN)
    assert status == 409
    assert str(agent.path) in error
    assert "delete it there" in error
    assert parameters(here) == [SHOVEL]
    assert delete(agent, here, token=TOKEN) == (204, "")
    assert parameters(here) == []
    eventually(lambda: named(here) not in agent.links(), what="the shovel ends")
    eventually(lambda: delete(agent, here, token=TOKEN)[0] == 404, what="it is gone")
    assert agent.links()[named(here, "of-file")]["status"] == "running"
    there.publish(["later"], "src", exchange="")
    assert depth(there.uri, "src") == 1
    assert [each["name"] for each in ask(agent, "/api/shovels")] == ["of-file"]
    assert agent.terminate() == 0
