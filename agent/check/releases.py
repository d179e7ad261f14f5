"""What a broker says about itself when a connection opens, and what follows from it for links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from agent.check.findings import Finding, Level, Topic

DAY: Final = 86_400.0
SOON: Final = 30 * DAY
MIB: Final = 1024 * 1024
LARGEST_CLOCK_DIFFERENCE: Final = 5.0
FEW_CHANNELS: Final = 32


@dataclass(frozen=True, slots=True)
class Certified:
    """A certificate and when it expires, in seconds since 1970."""

    what: str
    at: float


@dataclass(frozen=True, slots=True)
class Opened:
    """What one address showed when a connection was opened. `frame_max` 0 is no limit."""

    where: str
    vhost: str
    user: str
    version: str
    cluster: str | None
    frame_max: int
    channel_max: int
    limits_deliveries: bool = False
    asks_for_configure: bool = False
    is_encrypted: bool = False
    is_verified: bool = False
    certificates: tuple[Certified, ...] = ()
    blocked: str | None = None


def judge_opened(found: Opened, now: float) -> Iterator[Finding]:
    for each in found.certificates:
        yield from _expiry(found.where, each, now)
    if found.is_encrypted and not found.is_verified:
        yield Finding(
            Level.WARNING,
            Topic.TLS,
            found.where,
            "the server's certificate is not verified, so anybody on the way can read and change messages",
            "write verify=verify_peer and cacertfile=… in its URI",
        )
    if found.blocked is not None:
        yield Finding(
            Level.WARNING,
            Topic.ALARM,
            found.where,
            f"the broker accepts no messages now: {found.blocked}",
            "see `rabbitmq-diagnostics alarms` there",
        )
    if 0 < found.channel_max < FEW_CHANNELS:
        yield Finding(
            Level.WARNING,
            Topic.LIMITS,
            found.where,
            f"only {found.channel_max} channels a connection: links open one connection after the other",
            "raise channel_max there, or in the URI",
        )
    if not found.version:
        yield Finding(Level.NOTE, Topic.RELEASE, found.where, "the broker doesn't show its release")


def _expiry(where: str, found: Certified, now: float) -> Iterator[Finding]:
    days = (found.at - now) / DAY
    if days < 0:
        yield Finding(Level.ERROR, Topic.TLS, where, f"{found.what} expired {-days:.0f} days ago", "renew it")
    elif found.at - now < SOON:
        yield Finding(Level.WARNING, Topic.TLS, where, f"{found.what} expires in {days:.1f} days", "renew it")


def judge_pair(source: Opened, destination: Opened) -> Iterator[Finding]:
    """Two brokers that a link connects."""
    if destination.frame_max and (not source.frame_max or destination.frame_max < source.frame_max):
        yield Finding(
            Level.NOTE,
            Topic.LIMITS,
            f"{source.where} → {destination.where}",
            f"frames of {destination.frame_max} bytes at the destination, {source.frame_max or 'any number of'} at the "
            "source: headers that fit no frame go to the quarantine",
        )
    before, after = _largest(source), _largest(destination)
    if after < before:
        yield Finding(
            Level.NOTE,
            Topic.LIMITS,
            f"{source.where} → {destination.where}",
            f"by default the destination ({destination.version}) takes messages of up to {after // MIB} MiB, the "
            f"source ({source.version}) of up to {before // MIB} MiB: larger ones go to the quarantine. Brokers don't "
            "show their max_message_size",
            "set max_message_size of the destination to that of the source",
        )


def _largest(found: Opened) -> int:
    """The default of max_message_size."""
    return (16 if found.limits_deliveries else 128) * MIB


def judge_clock(where: str, difference: float) -> Iterator[Finding]:
    """`difference` is how far the broker's clock is ahead, in seconds; HTTP tells it in whole ones."""
    if abs(difference) > LARGEST_CLOCK_DIFFERENCE:
        direction = "ahead of" if difference > 0 else "behind"
        yield Finding(
            Level.WARNING,
            Topic.CLOCK,
            where,
            f"its clock is {abs(difference):.0f} s {direction} this machine's: times in logs, reports and headers "
            "don't agree, and certificates and tokens may count as expired",
            "run NTP on both machines",
        )
