"""When the certificates end that brokers show to a running agent, and its own."""

import re
import ssl
import time
import urllib.request

from agent.core.addresses.expiry import certificate_expiry
from tests.integration.conftest import TlsBroker
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import policies
from tests.lab.waiting import DEADLINE, eventually

SAMPLE = re.compile(r"^federation_agent_certificate_expiry_timestamp_seconds\{(.*)\} (\S+)$", re.MULTILINE)
DAY = 86_400


def test_metrics_tell_of_both_ends_certificates(agent_of: AgentOf, tls_broker: TlsBroker, site_on: SiteOn) -> None:
    node = tls_broker.node
    here, there = site_on(node), site_on(node)
    here.exchange().queue("#")
    node.admin.user("agent", "unused")
    node.admin.permissions(there.vhost, "agent")
    origin = tls_broker.amqps(f"{tls_broker.trust}&{tls_broker.show('agent')}&auth_mechanism=external", login="")
    agent = agent_of(node, uri=tls_broker.amqps(tls_broker.trust))
    agent.write(
        {here.vhost: {"upstreams": {"origin": {"uri": origin.replace("%2F", there.vhost)}}, "policies": policies()}}
    )
    agent.start().wait_for("running", (here.vhost, "fed.x", "origin"))

    def told() -> dict[tuple[str, ...], float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{agent.port}/metrics", timeout=DEADLINE) as answer:
            found = SAMPLE.findall(answer.read().decode())
        return {tuple(re.findall(r'="([^"]*)"', labels)): float(value) for labels, value in found}

    upstream = "upstream", here.vhost, "origin"
    wanted = {(*upstream, "client"), (*upstream, "server"), ("downstream", "", "", "server")}
    ends = eventually(lambda: found if (found := told()).keys() >= wanted else None, what="all are told")
    assert ends
    shown = ssl.PEM_cert_to_DER_cert(tls_broker.authority.client("agent").certfile.read_text())
    assert abs(ends[*upstream, "client"] - certificate_expiry(shown)) < DAY / 24
    server = ssl.get_server_certificate(("localhost", tls_broker.amqps_port))
    assert (
        ends[*upstream, "server"]
        == ends["downstream", "", "", "server"]
        == certificate_expiry(ssl.PEM_cert_to_DER_cert(server))
    )
    assert ends[*upstream, "server"] - time.time() < 2 * DAY
