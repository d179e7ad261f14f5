"""The settings of the agent itself and of the downstream cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import AmqpUri, HttpUrl
from agent.core.links.waits import CleanupAfter

if TYPE_CHECKING:
    from agent.core.standby.settings import StandbySettings


class Histograms(StrEnum):
    """The objects that `/metrics` has histograms of: `link` makes ten times as much text as all else of a link."""

    LINK = "link"
    UPSTREAM = "upstream"


@dataclass(frozen=True, slots=True)
class HttpSettings:
    host: str = "127.0.0.1"
    port: int = 9419
    token: Secret | None = None
    allow_anonymous: bool = False
    histograms: Histograms = Histograms.LINK
    public_url: str | None = None


class Fsync(StrEnum):
    """The times at which exported events are forced to disk."""

    ALWAYS = "always"
    ROTATE = "rotate"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class StatusExportSettings:
    """The export of status events; without `keep_days` nothing is deleted."""

    directory: str
    sample_interval: float = 10.0
    rotate: float = 60.0
    keep_days: int | None = None
    fsync: Fsync = Fsync.ROTATE


class LogFormat(StrEnum):
    """`auto` is for people on a terminal, otherwise for programs."""

    AUTO = "auto"
    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class LogSettings:
    format: LogFormat = LogFormat.AUTO
    level: LogLevel = LogLevel.INFO


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """`name` defaults to the host's name, `group` to the downstream's cluster name."""

    name: str | None = None
    group: str | None = None
    http: HttpSettings = HttpSettings()
    status_export: StatusExportSettings | None = None
    stall_after: float = 30.0
    log: LogSettings = LogSettings()
    cleanup_after: CleanupAfter = field(default_factory=CleanupAfter)
    peers: tuple[HttpUrl, ...] = ()


@dataclass(frozen=True, slots=True)
class DownstreamSettings:
    """Interchangeable addresses of the downstream cluster."""

    uris: tuple[AmqpUri, ...] = ()
    management: tuple[HttpUrl, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceSettings:
    management: bool = True
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    downstream: DownstreamSettings
    agent: AgentSettings = AgentSettings()
    sources: SourceSettings = field(default_factory=SourceSettings)
    standby: StandbySettings | None = None
