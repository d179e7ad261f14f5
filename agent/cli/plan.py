"""`plan`: what `run` would do, for people and for programs."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.cli import output
from agent.cli.remote import url_of
from agent.cli.running_agent import RunningAgent, find_running
from agent.core import fields
from agent.core.links.plan import Action, Outlook, Plan, PlannedLink, RunningLink
from agent.core.links.upstream_steps import Verb
from agent.core.model import Link, LinkKind, LinkSettings, ShovelLink
from agent.core.rules.hops import BOUND_FROM
from agent.core.text import counted, waiting_text
from agent.definitions.sources.load import load_configuration
from agent.errors import Severity
from agent.runtime.plan_inputs import PlanInputs, read_plan_inputs

_MARKS = {
    Verb.CREATE: ("+", "green"),
    Verb.BIND: ("+", "green"),
    Verb.KEEP: ("=", "white"),
    Verb.UNBIND: ("-", "red"),
    Verb.DELETE: ("-", "red"),
}
_OF_ENDINGS = ("id", "kind", "vhost", "name", "upstream", "backlog")
_OF_BINDINGS = frozenset({Verb.BIND, Verb.UNBIND})
_COLOURS = {Outlook.RUN: "green", Outlook.STANDBY: "yellow", Outlook.BACKOFF: "red", Outlook.INVALID: "red"}
BINDINGS_SHOWN = 10
PAUSED = "paused"
ENDED = (
    "it is no longer defined; what it built upstream, messages included, is removed after agent.cleanup-after, "
    "unless another link uses it or resource-cleanup-mode is never"
)
STAYS = "it is no longer defined; its queue stays as it is"


def show_plan(path: Path, *, as_json: bool) -> bool:
    """Returns True if anything would change."""
    configuration = load_configuration(str(path), environment=os.environ)
    http = configuration.settings.agent.http
    agent = find_running(http)
    found = asyncio.run(read_plan_inputs(configuration, agent))
    output.complain(*(str(problem) for problem in found.problems))
    if as_json:
        output.say_json(_as_json(found, agent))
    else:
        standby = configuration.settings.standby
        about = [_agent_line(url_of(http), agent, found), *([] if standby is None else [standby.in_words])]
        for line in _lines(found, about):
            output.say(line)
    return found.plan.has_changes


def _agent_line(url: str, agent: RunningAgent | None, found: PlanInputs) -> str:
    if agent is None:
        return f"agent {url}: none answers; this is what an agent does that starts"
    if agent.cluster != found.reading.cluster:
        return f"agent {url}: runs beside another cluster, {agent.cluster!r}; this is what an agent does that starts"
    if not agent.has_answered:
        return f"agent {url}: doesn't answer what its links have bound; this is what an agent does that starts"
    return f"agent {url}: runs; this is what it does next"


def _lines(found: PlanInputs, about: list[str]) -> list[str]:
    reading = found.reading
    lines = [f"downstream {reading.broker}: cluster {reading.cluster!r}, RabbitMQ {reading.version}", *about]
    lines += [_line(action) for action in found.plan.downstream]
    for planned in found.plan.links:
        lines += ["", *_link_lines(planned)]
    lines += [line for link in found.plan.ended for line in ("", ended_line(link))]
    not_run = _not_run(found)  # each has its problem above
    more = f"; {counted(not_run, 'definition')} not run" if not_run else ""
    return [*lines, "", f"{_summary(found.plan)}{more}"]


def _not_run(found: PlanInputs) -> int:
    return sum(problem.severity is Severity.NOT_RUN for problem in found.problems)


def ended_line(link: RunningLink) -> str:
    waits = waiting_text(link.backlog or 0, "in its queue", is_exact=link.backlog is not None)
    then = ENDED if link.kind == LinkKind.EXCHANGE else STAYS
    return output.line(f"link {link.id}: {_named(link)}: ", output.paint("ends", "red"), f": {waits}; {then}")


def _named(link: Link | RunningLink) -> str:
    source = f" from upstream {link.upstream!r}" if link.upstream else ""
    return f"{link.kind} {link.name!r} in vhost {link.vhost!r}{source}"


def _link_lines(planned: PlannedLink) -> list[str]:
    link = planned.link
    outlook = (
        output.paint(PAUSED, "blue") if _is_held(planned) else output.paint(planned.outlook, _COLOURS[planned.outlook])
    )
    head = output.line(f"link {link.id}: {_named(link)} ({planned.broker}): ", outlook)
    if planned.reason:
        return [output.line(head, f": {planned.reason}")]
    if planned.is_paused:
        head = output.line(head, "; once it is resumed:")
    bindings = [action for action in planned.actions if action.verb in _OF_BINDINGS]
    others = [action for action in planned.actions if action.verb not in _OF_BINDINGS]
    lines = [head, *(_line(action) for action in [*others, *bindings[:BINDINGS_SHOWN]])]
    if len(bindings) > BINDINGS_SHOWN:
        lines.append(f"  + {len(bindings) - BINDINGS_SHOWN:,} more bindings (--format json shows all)")
    return lines


def _is_held(planned: PlannedLink) -> bool:
    """It would run, but for somebody who has paused it."""
    return planned.is_paused and planned.outlook is Outlook.RUN


def _line(action: Action) -> str:
    mark, colour = _MARKS[action.verb]
    what = (
        f"key {action.name!r}{_matching(action)}" if action.verb in _OF_BINDINGS else f"{action.kind} {action.name!r}"
    )
    return output.line("  ", output.paint(mark, colour), f" {action.verb} {what}: {action.why}")


def _matching(action: Action) -> str:
    """The arguments that a binding matches besides its key; its origin is shown elsewhere."""
    arguments = fields.table_to_json(fields.without(action.arguments, BOUND_FROM))
    return f" {json.dumps(arguments, ensure_ascii=False)}" if arguments else ""


def _summary(plan: Plan) -> str:
    actions = Counter(
        action.verb
        for action in (*plan.downstream, *(one for each in plan.links if not each.is_paused for one in each.actions))
    )
    outlooks = Counter(PAUSED if _is_held(planned) else planned.outlook for planned in plan.links)
    links = ", ".join(f"{outlooks[each]} {each}" for each in (*Outlook, PAUSED) if outlooks[each]) or "none"
    changes = [f"{actions[verb]} to {verb}" for verb in Verb if actions[verb] and verb is not Verb.KEEP]
    changes += [f"{counted(len(plan.ended), 'link')} to end"] if plan.ended else []
    kept = [f"{actions[Verb.KEEP]} to keep"] if actions[Verb.KEEP] else []
    return f"links: {links}; {', '.join(changes + kept) if changes else 'no changes'}"


def _as_json(found: PlanInputs, agent: RunningAgent | None) -> dict[str, Any]:
    reading = found.reading
    return {
        "downstream": {"broker": reading.broker, "cluster": reading.cluster, "version": reading.version},
        "agent": None if agent is None or not agent.has_answered else {"url": agent.url, "cluster": agent.cluster},
        "actions": [_action_as_json(action) for action in found.plan.downstream],
        "links": [_link_as_json(planned) for planned in found.plan.links],
        "ended": [link.id for link in found.plan.ended],
        "endings": [{key: getattr(link, key) for key in _OF_ENDINGS} for link in found.plan.ended],
        "not_run": _not_run(found),
        "problems": [
            {"place": str(problem.place), "severity": problem.severity, "message": problem.message}
            for problem in found.problems
        ],
    }


def _action_as_json(action: Action) -> dict[str, Any]:
    return {**asdict(action), "arguments": fields.table_to_json(action.arguments)}


def _settings_as_json(link: Link) -> dict[str, Any]:
    """By the keys of an upstream, with every default filled in; of them a shovel has only its rules, so all others are
    the defaults."""
    settings = LinkSettings() if isinstance(link, ShovelLink) else link.settings
    found = {key.replace("_", "-"): value for key, value in asdict(settings).items()}
    rules, limit = link.settings, link.settings.rate_limit
    return {
        **found,
        "prefetch-count": found["prefetch-count"] or "auto",
        "set-headers": fields.table_to_json(rules.set_headers),
        "remove-headers": list(rules.remove_headers),
        "rate-limit": None if limit is None else asdict(limit),
    }


def _link_as_json(planned: PlannedLink) -> dict[str, Any]:
    link = planned.link
    return {
        "id": link.id,
        "kind": link.kind,
        "vhost": link.vhost,
        "name": link.name,
        "upstream": link.upstream,
        "upstream_name": link.remote_name,
        "uri": planned.broker,
        "policy": link.policy,
        "settings": _settings_as_json(link),
        "outlook": planned.outlook,
        "reason": planned.reason,
        "paused": planned.is_paused,
        "bindings": planned.bindings,
        "actions": [_action_as_json(action) for action in planned.actions],
    }
