"""The settings of the agent itself, its downstream and its sources."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, Strict, WithJsonSchema
from pydantic_core import PydanticCustomError

from agent.core import settings
from agent.core.addresses import uri
from agent.core.links.waits import CleanupAfter
from agent.definitions.document.findings import Spot
from agent.definitions.models import values
from agent.definitions.models.validation import StrictModel
from agent.definitions.models.values import INTEGRAL, MAX_EXPIRY, MAY_BE_EMPTY, key, kind_of, readable, refuse
from agent.errors import UsageError

MOST_PEERS = 100  # all are asked at the same time
_LISTEN = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:/@\s]+)):(?P<port>[0-9]{1,5})")

_PUBLIC_URL = re.compile(r"https?://[^\s/?#@\"'<>\\]+(?:/[^\s?#\"'<>\\]*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Listen:
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"


def parse_listen(value: object) -> Listen:
    if not isinstance(value, str):
        raise refuse(f"expected HOST:PORT, got {kind_of(value)}")
    found = _LISTEN.fullmatch(value)
    if found is None or int(found["port"]) > 65535:
        raise refuse("expected HOST:PORT, such as 127.0.0.1:9419 or [::1]:9419")
    return Listen(found["ipv6"] or found["host"], int(found["port"]))


def listen_of(option: str, value: str) -> Listen:
    """The value of a command's option. Raises UsageError."""
    try:
        return parse_listen(value)
    except PydanticCustomError as error:
        raise UsageError(f"{option}: {error.message()}") from error


def _parse_public_url(value: object) -> str:
    if not isinstance(value, str):
        raise refuse(f"expected a URL, got {kind_of(value)}")
    if not _PUBLIC_URL.fullmatch(value):
        raise refuse("expected http://HOST[:PORT][/PATH], without user, query and fragment")
    return value.rstrip("/")


PublicUrl = Annotated[str, BeforeValidator(_parse_public_url), WithJsonSchema({"type": "string"})]
ListenAddress = Annotated[Listen, BeforeValidator(parse_listen), WithJsonSchema({"type": "string"})]


class MetricsModel(StrictModel):
    """What `/metrics` holds."""

    noun = "agent.http.metrics"

    transfer_histogram: Annotated[settings.Histograms, Strict(False)] = Field(
        default=settings.Histograms.LINK,
        description="`link`, the default: everything for each link. `upstream`, for many links: histograms and some "
        "sums for each upstream, and of a link no counters that are still zero and few states that it is not in.",
    )


class HttpModel(StrictModel):
    """The address and access of the agent's page, API and metrics."""

    noun = "agent.http"

    listen: ListenAddress = Field(
        default=Listen("127.0.0.1", 9419), description="HOST:PORT to listen on; 127.0.0.1:9419 by default."
    )
    token: values.SecretText = key(
        "Bearer token that changes need; reading needs it too if `listen` is not loopback, unless `allow-anonymous` "
        "is true."
    )
    allow_anonymous: bool = Field(
        default=False, description="Whether a non-loopback address may be served without a token; false by default."
    )
    public_url: PublicUrl = key(
        "Where browsers reach the page, as through a proxy; links in alerts lead there. The scraped address by default."
    )
    metrics: Annotated[MetricsModel, MAY_BE_EMPTY] = Field(
        default_factory=MetricsModel, description="What `/metrics` holds."
    )

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        if raw.get("token") == "":
            spot.error("http.token: the token is empty", "token")
        found = _LISTEN.fullmatch(raw["listen"]) if isinstance(raw.get("listen"), str) else None
        open_to_all = found and not Listen(found["ipv6"] or found["host"], 0).is_loopback
        if open_to_all and "token" not in raw and raw.get("allow-anonymous") is not True:
            spot.error("http.listen: others can reach this address; set a token, or allow-anonymous: true", "listen")

    def to_core(self) -> settings.HttpSettings:
        return settings.HttpSettings(
            self.listen.host,
            self.listen.port,
            self.token,
            allow_anonymous=self.allow_anonymous,
            histograms=self.metrics.transfer_histogram,
            public_url=self.public_url,
        )


class StatusExportModel(StrictModel):
    """Status events as files, for `federation-agent report`."""

    noun = "agent.status-export"

    directory: Annotated[values.Text, Field(min_length=1)] = Field(
        description="Directory to write to, relative to this file; mandatory."
    )
    sample_interval: values.Seconds = Field(
        default=10.0, description="Seconds between samples of a link; 10 by default."
    )
    rotate: values.Seconds = Field(default=60.0, description="Seconds after which a file is finished; 60 by default.")
    keep_days: Annotated[int, Field(ge=1, le=36500), INTEGRAL] = key(
        "Days after which this agent's files are deleted; never by default."
    )
    fsync: Annotated[settings.Fsync, Strict(False)] = Field(
        default=settings.Fsync.ROTATE,
        description="When events are forced to disk: at each write, with each finished file (default), or never.",
    )

    def to_core(self, directory: str) -> settings.StatusExportSettings:
        written = {name: getattr(self, name) for name in type(self).model_fields}
        return settings.StatusExportSettings(**written | {"directory": str(Path(directory, self.directory))})


class LogModel(StrictModel):
    """The agent's log, one event per line on standard output; read at start only."""

    noun = "agent.log"

    format: Annotated[settings.LogFormat, Strict(False)] = Field(
        default=settings.LogFormat.AUTO,
        description="`console` for people, `json` for programs, or `auto`: `console` on a terminal; `auto` by default.",
    )
    level: Annotated[settings.LogLevel, Strict(False)] = Field(
        default=settings.LogLevel.INFO, description="Lowest level that is logged; `info` by default."
    )

    def to_core(self) -> settings.LogSettings:
        return settings.LogSettings(self.format, self.level)


class CleanupModel(StrictModel):
    """When the upstream objects of a link that is no longer defined are removed; one number sets both, 0: at once."""

    noun = "agent.cleanup-after"

    empty: values.SecondsOrNone = Field(
        default=10.0, description="Seconds if its queue upstream is empty; 10 by default."
    )
    waiting: values.SecondsOrNone = Field(default=600.0, description="Seconds if messages wait in it; 600 by default.")

    def to_core(self) -> CleanupAfter:
        return CleanupAfter(self.empty, self.waiting)


def _both(value: object) -> object:
    """A number is short for a mapping in which both keys have that value."""
    if isinstance(value, dict | CleanupModel):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(f"expected a number, or a mapping with 'empty' and 'waiting', got {kind_of(value)}")
    if not math.isfinite(value) or not 0 <= value <= MAX_EXPIRY / 1000:
        raise refuse(f"must be at least 0 and at most {MAX_EXPIRY // 1000}")
    return {"empty": float(value), "waiting": float(value)}


_OR_ONE_NUMBER = values.AlsoWritten(_both, {"type": "number", "minimum": 0, "maximum": MAX_EXPIRY / 1000})


class AgentModel(StrictModel):
    """The agent itself."""

    noun = "agent"

    name: values.Name = key("Name of this process; the host's name by default.")
    group: values.Name = key("Replicas of one group share the links; the downstream's cluster name by default.")
    http: Annotated[HttpModel, MAY_BE_EMPTY] = Field(default_factory=HttpModel, description="The agent's HTTP server.")
    status_export: StatusExportModel = key("Status events as files, for `federation-agent report`; none by default.")
    stall_after: values.Seconds = Field(
        default=30.0, description="Seconds without a confirm, despite a backlog, until a link is `stalled`; 30."
    )
    log: Annotated[LogModel, MAY_BE_EMPTY] = Field(default_factory=LogModel, description="Format and level of the log.")
    cleanup_after: Annotated[CleanupModel, _OR_ONE_NUMBER] = Field(
        default_factory=CleanupModel,
        description="Seconds until the upstream objects of a link that is no longer defined are removed: one number or "
        "`{empty: 10, waiting: 600}`, the default; 0 removes at once.",
    )
    peers: values.PeerUrls = key(
        "URLs of agents beside other clusters, `http://agent:TOKEN@HOST:9419`, or one: the page shows them together."
    )

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        if isinstance(raw.get("http"), dict):
            HttpModel.rules(raw["http"], spot.at("http"))
        if isinstance(raw.get("peers"), list) and len(raw["peers"]) > MOST_PEERS:
            spot.error(f"peers: more than {MOST_PEERS} of them", "peers")
        for peer in readable(raw.get("peers"), uri.parse_peer):
            for warning in peer.warnings:
                spot.warn(f"peers: {warning}", "peers")

    def to_core(self, directory: str) -> settings.AgentSettings:
        export = self.status_export.to_core(directory) if "status_export" in self.model_fields_set else None
        return settings.AgentSettings(
            self.name,
            self.group,
            self.http.to_core(),
            export,
            self.stall_after,
            self.log.to_core(),
            self.cleanup_after.to_core(),
            self.peers or (),
        )


class SourcesModel(StrictModel):
    """Sources of definitions besides this file."""

    noun = "definitions"

    management: bool = Field(
        default=True, description="Whether to read definitions from the downstream's HTTP API; true by default."
    )
    files: values.Texts = Field(
        default=(), description="RabbitMQ definitions exports, JSON or YAML, relative to this file."
    )

    def to_core(self, directory: str) -> settings.SourceSettings:
        return settings.SourceSettings(self.management, tuple(str(Path(directory, name)) for name in self.files))
