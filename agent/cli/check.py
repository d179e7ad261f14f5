"""`check`: checks a configuration on the real brokers."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from agent.check.configuration import CheckResult, TrialRunner, check
from agent.check.context import Attempt
from agent.check.findings import Finding, FindingLevel, has_problems
from agent.cli import output
from agent.cli.options import with_secrets
from agent.cli.running_agent import find_running
from agent.core.addresses import uri
from agent.core.addresses.uri import HttpUrl
from agent.core.text import counted, listed
from agent.definitions.sources.load import load_configuration
from agent.errors import UriError, UsageError

MOST_SHOWN: Final = 50  # findings, in text
MOST_IN_JSON: Final = 1_000
MOST_LINKS: Final = 5
MOST_LINKS_IN_JSON: Final = 100
_COLOURS: Final = {FindingLevel.ERROR: "red", FindingLevel.WARNING: "yellow", FindingLevel.NOTE: "white"}


def check_brokers(path: Path, apis: Sequence[str], *, deliver: bool, as_json: bool) -> bool:
    """Returns True if there are no problems."""
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


def _trial() -> TrialRunner:
    try:
        from agent.check.trial import try_links
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
        # A URL without a name is never quoted, as it is secret.
        if not is_given or not name or "://" in name or "@" in name:
            raise UsageError("--api is NAME=URL, such as origin=${env:ORIGIN_API} or rabbit.dc1.example:5672=http://…")
        try:
            found.setdefault(name, []).append(uri.parse_http(with_secrets(f"--api {name}", text)))
        except UriError as error:
            raise UsageError(f"--api {name}: {error}") from error
    return found


def _lines(found: CheckResult) -> Iterator[str]:
    for finding in found.findings[:MOST_SHOWN]:
        yield output.line(
            output.paint(finding.level, _COLOURS[finding.level]),
            f" {finding.topic}: {finding.where}: {finding.message}",
        )
        if finding.fix:
            yield f"  → {finding.fix}"
        if finding.links:
            yield f"  links: {listed(finding.links, MOST_LINKS)}"
    if len(found.findings) > MOST_SHOWN:
        yield f"{counted(len(found.findings) - MOST_SHOWN, 'more finding')}: --format json has up to {MOST_IN_JSON:,}"
    for each in sorted(_worked(found.attempts)):
        yield output.line(output.paint("ok", "green"), f" {each}")
    counts = Counter(each.level for each in found.findings)
    total = ", ".join(counted(counts[level], level) for level in FindingLevel)
    yield f"{counted(len(found.context.links), 'link')} checked: {total}"


def _worked(attempts: Sequence[Attempt]) -> Iterator[str]:
    for each in attempts:
        if each.broker is not None:
            broker = each.broker
            user = f"user {broker.user!r}" if broker.user else "client certificate"
            protocol = ", AMQP 1.0" if each.endpoint.is_amqp10 else ""
            tls = "" if not broker.is_encrypted else ", TLS" + ("" if broker.is_verified else " without verification")
            yield (
                f"{each.where}: {broker.product} {broker.version or 'of unknown release'}, cluster {broker.cluster!r}, "
                f"vhost {broker.vhost!r}, {user}{protocol}{tls}"
            )


def _as_json(found: CheckResult) -> dict[str, Any]:
    return {
        "ok": not has_problems(found.findings),
        "links": len(found.context.links),
        "endpoints": [_endpoint(each) for each in found.attempts],
        "findings": [_finding(each) for each in found.findings[:MOST_IN_JSON]],
        "omitted": max(0, len(found.findings) - MOST_IN_JSON),
    }


def _endpoint(attempt: Attempt) -> dict[str, Any]:
    broker = attempt.broker
    facts: Mapping[str, Any] = {}
    if broker is not None:
        facts = {
            "vhost": broker.vhost,
            "user": broker.user,
            "version": broker.version,
            "cluster": broker.cluster,
            "tls": broker.is_encrypted,
            "verified": broker.is_verified,
            "frame_max": broker.frame_max,
            "channel_max": broker.channel_max,
            "certificates": [{"what": each.what, "expires": each.at} for each in broker.certificates],
        }
    return {"where": attempt.where, "uri": str(attempt.uri), "ok": broker is not None, **facts}


def _finding(found: Finding) -> dict[str, Any]:
    return {**asdict(found), "links": found.links[:MOST_LINKS_IN_JSON], "links_total": len(found.links)}
