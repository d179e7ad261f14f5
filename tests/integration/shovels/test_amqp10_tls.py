"""Shovels with ends of AMQP 1.0 by TLS."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import pytest

from tests.integration.conftest import start
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import running
from tests.integration.shovels.test_amqp10 import PLUGIN, Amqp10
from tests.lab.lab import Lab
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import eventually

CLIENT: Final = "client"


@pytest.mark.thorough
def test_by_tls_and_a_certificate(agent_of: AgentOf, here: Site, lab: Lab, site_on: SiteOn) -> None:
    """The source by TLS and a password, the destination by the client's certificate."""
    tls = start(lab, "tls10", more_plugins=(PLUGIN,))
    site = site_on(tls.node).queue(name="src").queue(name="dest")
    tls.node.admin.user(CLIENT, "unused", "")
    tls.node.admin.permissions(site.vhost, CLIENT)
    ten = Amqp10(site, is_in_core=False)
    at = f"localhost:{tls.amqps_port}/{quote(site.vhost, safe='')}?{tls.trust}"
    uris = {
        "src-uri": f"amqps://guest:guest@{at}",
        "dest-uri": f"amqps://{at}&{tls.show(CLIENT)}&auth_mechanism=external",
    }
    running(agent_of(here.node), here, ten.end("src", "src") | ten.end("dest", "dest") | uris)
    site.publish(numbered(500), "src", exchange="")
    assert site.take(500, queue="dest") == numbered(500)
    eventually(lambda: depth(site.uri, "src") == 0, what="all are acknowledged")
