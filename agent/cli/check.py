"""`check`: a preflight of a configuration on the real brokers."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.cli import output
from agent.cli.references import resolved
from agent.cli.running_agent import find_running
from agent.core.addresses import http_url
from agent.core.addresses.http_url import HttpUrl
from agent.core.check.finding import Finding, Level, has_problems
from agent.core.text.quantities import counted
from agent.definitions.sources.load import load_configuration
from agent.errors import UriError, UsageError
from agent.runtime.preflight.endpoints import Tried
from agent.runtime.preflight.preflight import Checked, Trial, check

MOST_SHOWN: Final = 50  # findings, in text
MOST_IN_JSON: Final = 1_000
MOST_LINKS: Final = 5
MOST_LINKS_IN_JSON: Final = 100
_COLOURS: Final = {Level.ERROR: "red", Level.WARNING: "yellow", Level.NOTE: "white"}


def check_brokers(path: Path, apis: Sequence[str], *, deliver: bool, as_json: bool) -> bool:
    """Returns whether there are no problems."""
    configuration = load_configuration(str(path), environment=os.environ)
    trial = _trial() if deliver else None
    agent = find_running(configuration.settings.agent.http)
    found = asyncio.run(check(configuration, apis=_apis(apis), agent=agent, trial=trial))
    if as_json:
        output.say_json(_as_json(found))
    else:
        for line in _lines(found):
            output.say(line)
    return not has_problems(found.findings)


def _trial() -> Trial:
    try:
        from agent.runtime.preflight.delivery import try_links
    except ImportError as error:
        raise UsageError(
            "--deliver needs aio-pika, an independent client, which is not installed: the agent's image has it; "
            "elsewhere install locks/traffic.lock of the checkout, as docs/install.md shows"
        ) from error
    return try_links


def _apis(given: Sequence[str]) -> dict[str, list[HttpUrl]]:
    """A value may refer to a secret, so that none is on the command line."""
    found: dict[str, list[HttpUrl]] = {}
    for each in given:
        name, is_given, text = each.partition("=")
        if (
            not is_given or not name or "://" in name or "@" in name
        ):  # a URL without a name: never quoted, as it is secret
            raise UsageError("--api is NAME=URL, such as origin=${env:ORIGIN_API} or rabbit.dc1.example:5672=http://…")
        try:
            found.setdefault(name, []).append(http_url.parse(resolved(text, f"--api {name}")))
        except UriError as error:
            raise UsageError(f"--api {name}: {error}") from error
    return found


def _lines(found: Checked) -> Iterator[str]:
    for finding in found.findings[:MOST_SHOWN]:
        yield output.line(
            output.paint(finding.level, _COLOURS[finding.level]),
            f" {finding.topic}: {finding.where}: {finding.message}",
        )
        if finding.fix:
            yield f"  → {finding.fix}"
        if finding.links:
            more = len(finding.links) - MOST_LINKS
            yield f"  links: {', '.join(finding.links[:MOST_LINKS])}" + (f" and {more} more" if more > 0 else "")
    if len(found.findings) > MOST_SHOWN:
        yield f"{counted(len(found.findings) - MOST_SHOWN, 'more finding')}: --format json has up to {MOST_IN_JSON:,}"
    for each in sorted(_worked(found.tried)):
        yield output.line(output.paint("ok", "green"), f" {each}")
    counts = Counter(each.level for each in found.findings)
    total = ", ".join(counted(counts[level], level) for level in Level)
    yield f"{counted(len(found.scene.links), 'link')} checked: {total}"


def _worked(tried: Sequence[Tried]) -> Iterator[str]:
    for each in tried:
        if each.opened is not None:
            shown = each.opened
            user = f"user {shown.user!r}" if shown.user else "client certificate"
            days = "" if not shown.is_encrypted else ", TLS" + ("" if shown.is_verified else " without verification")
            yield (
                f"{each.where}: RabbitMQ {shown.version or 'of unknown release'}, cluster {shown.cluster!r}, vhost "
                f"{shown.vhost!r}, {user}{days}"
            )


def _as_json(found: Checked) -> dict[str, Any]:
    return {
        "ok": not has_problems(found.findings),
        "links": len(found.scene.links),
        "endpoints": [_endpoint(each) for each in found.tried],
        "findings": [_finding(each) for each in found.findings[:MOST_IN_JSON]],
        "omitted": max(0, len(found.findings) - MOST_IN_JSON),
    }


def _endpoint(tried: Tried) -> dict[str, Any]:
    shown = tried.opened
    seen: Mapping[str, Any] = {}
    if shown is not None:
        seen = {
            "vhost": shown.vhost,
            "user": shown.user,
            "version": shown.version,
            "cluster": shown.cluster,
            "tls": shown.is_encrypted,
            "verified": shown.is_verified,
            "frame_max": shown.frame_max,
            "channel_max": shown.channel_max,
            "certificates": [{"what": each.what, "expires": each.at} for each in shown.certificates],
        }
    return {"where": tried.where, "uri": str(tried.uri), "ok": shown is not None, **seen}


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "level": found.level,
        "topic": found.topic,
        "where": found.where,
        "message": found.message,
        "fix": found.fix,
        "links": list(found.links[:MOST_LINKS_IN_JSON]),
        "links_total": len(found.links),
    }
