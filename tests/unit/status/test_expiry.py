"""When certificates and tokens expire, for `/metrics`."""

from prometheus_client.parser import text_string_to_metric_families

from agent.core.addresses.expiry import Credential, Expiry, Peer
from agent.status.expiry import exposition


def test_the_first_of_several_alike_is_told() -> None:
    told = exposition(
        (
            Expiry(Peer.UPSTREAM, Credential.SERVER, 300.0, vhost='a"b', upstream="origin"),
            Expiry(Peer.UPSTREAM, Credential.SERVER, 200.0, vhost='a"b', upstream="origin"),
            Expiry(Peer.UPSTREAM, Credential.CLIENT, 100.0, vhost='a"b', upstream="origin"),
            Expiry(Peer.DOWNSTREAM, Credential.JWT, 50.5),
        )
    ).decode()
    found = {
        (sample.name, sample.labels["peer"], sample.labels["vhost"], sample.labels.get("certificate")): sample.value
        for family in text_string_to_metric_families(told)
        for sample in family.samples
    }
    certificate, token = (
        "federation_agent_certificate_expiry_timestamp_seconds",
        "federation_agent_token_expiry_timestamp_seconds",
    )
    assert found == {
        (certificate, "upstream", 'a"b', "server"): 200.0,
        (certificate, "upstream", 'a"b', "client"): 100.0,
        (token, "downstream", "", None): 50.5,
    }
