"""The cluster that the agent runs beside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from pydantic import Field

from agent.core.addresses import http_url, uri
from agent.core.addresses.http_url import HttpUrl
from agent.core.addresses.uri import AmqpUri
from agent.core.addresses.url_text import Tls
from agent.core.settings import DownstreamSettings
from agent.definitions.document.findings import Spot
from agent.definitions.models.keys import Keys
from agent.definitions.models.tls import SslOptionsModel, warn_unverified
from agent.definitions.models.upstream import warn_uris
from agent.definitions.models.value_types import MAY_BE_EMPTY, AmqpUris, HttpUrls, key, readable

Address = TypeVar("Address", AmqpUri, HttpUrl)


class DownstreamModel(Keys):
    """The cluster that the agent runs beside."""

    noun = "downstream"

    uri: AmqpUris = Field(description="AMQP URI of the cluster, or a list of interchangeable ones; mandatory.")
    management: HttpUrls = key("URL of its HTTP API, or a list; without it bindings come from `bindings`.")
    ssl_options: Annotated[SslOptionsModel, MAY_BE_EMPTY] = key(
        "TLS settings for `amqps` and `https` above; an address that has some of its own uses those instead."
    )

    def to_core(self) -> DownstreamSettings:
        tls = self.ssl_options.to_core() if "ssl_options" in self.model_fields_set else Tls()
        return DownstreamSettings(_secured(self.uri, tls), _secured(self.management or (), tls))

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        endpoints = readable(raw.get("uri"), uri.parse)
        for endpoint in endpoints:
            if endpoint.is_downstream_itself:
                spot.error("uri: the downstream's URI needs a host", "uri")
            if endpoint.vhost("/") not in {"/", ""}:
                spot.warn("uri: the path is ignored; the agent serves every vhost", "uri")
        warn_uris(tuple(endpoint for endpoint in endpoints if endpoint.path != "/"), spot, "uri")
        urls = readable(raw.get("management"), http_url.parse)
        for url in urls:
            for warning in url.warnings:
                spot.warn(f"management: {warning}", "management")
        if isinstance(raw.get("ssl-options"), dict):
            used = [*(each.tls for each in endpoints), *(each.tls for each in urls)]
            _check_ssl_options(raw["ssl-options"], used, spot)


def _check_ssl_options(raw: Mapping[str, Any], used: Iterable[Tls | None], spot: Spot) -> None:
    SslOptionsModel.rules(raw, spot.at("ssl-options"))
    if all(tls is None or tls.are_own for tls in used):
        spot.warn("ssl-options do nothing: no address is amqps or https without settings of its own", "ssl-options")
    elif raw.get("verify") == "verify_none":
        warn_unverified(spot)


def _secured(addresses: tuple[Address, ...], tls: Tls) -> tuple[Address, ...]:
    return tuple(each if each.tls is None or each.tls.are_own else replace(each, tls=tls) for each in addresses)
